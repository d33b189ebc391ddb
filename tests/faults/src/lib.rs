//! Faults from outside the agent: a file system that breaks on demand, power that goes, and what must hold after.
//!
//! The agent under test is the binary that ships; it knows nothing of this. Its root is a FUSE file system in
//! memory ([`filesystem`]) that numbers every operation which changes something, keeps a log of them, and strikes
//! at the one it is told. From the log of a whole run [`power`] makes the trees that a machine may come up with
//! after its power went, `clock` has a process see another time, and [`check`] says what is wrong with a tree.

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
