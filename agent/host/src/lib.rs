//! Observes this machine and applies a plan to it.

pub mod facts;
