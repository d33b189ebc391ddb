//! Limits for reads from a store.

/// The largest file that is read, in bytes. kOps' files are far smaller, and a file is held in memory while it is read.
pub const LARGEST_FILE: u64 = 8 * 1024 * 1024;
