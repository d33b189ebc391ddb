//! How much of a store is read at once.

/// The largest file that is read, in bytes. What kOps writes is far smaller, and a file is held in
/// memory while it is read.
pub const LARGEST_FILE: u64 = 8 * 1024 * 1024;
