//! Reads and writes the Node of this machine, with kubelet's credentials.

mod drain;
mod orders;
mod statement;
#[cfg(test)]
mod testing;

pub use drain::{OwnNode, Remaining};
pub use orders::{Orders, retried};
pub use statement::{FIELD_MANAGER, Told, Untold, current_condition, tell, versions};
