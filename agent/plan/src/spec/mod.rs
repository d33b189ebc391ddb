//! What kOps wrote: its own API, by its own names.
