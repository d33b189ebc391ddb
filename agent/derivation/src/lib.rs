//! The configuration of a group's nodes, from what the state store says of the cluster: read as kOps wrote it, or derived
//! from `cluster-completed.spec` and the instance group. For the node itself, and for control-plane mode, which serves it
//! to machines that do not read the store.
//!
//! Deriving is `kops_agent_plan::derive`, which is pure; here is what it needs of the store and of publishers.

pub mod asset_hashes;
pub mod cluster_files;
mod derivation;
pub mod nodeup_config;
mod store_files;

pub use derivation::{Derivation, Derived, Incomplete, Proof};
pub use store_files::{StoreFile, StoreFiles, each};
