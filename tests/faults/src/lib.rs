//! Injects faults into runs of the agent: a file system that fails on demand, power cuts and clock jumps. Then checks the
//! tree that is left.
//!
//! The agent under test is the binary that ships, without code for these tests. Its root is a FUSE file system in memory
//! ([`filesystem`]), which numbers and logs every changing operation and injects a fault at one of them. From the log of
//! a whole run, [`power`] makes the trees that a machine may have after a power cut. `clock` shifts the time that a
//! process sees. [`check`] finds the problems of a tree.

pub mod check;
#[cfg(target_arch = "x86_64")]
pub mod clock;
pub mod fault;
pub mod filesystem;
pub mod matrix;
pub mod operation;
pub mod power;
pub mod scenario;
pub mod table;
pub mod tree;
