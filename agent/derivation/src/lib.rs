//! The configuration of a group's nodes, from the state store: read as kOps wrote it, or derived from
//! `cluster-completed.spec` and the instance group. The node itself uses it. Control-plane mode serves it to machines
//! that do not read the store.
//!
//! `kops_agent_plan::derive` derives, and is pure. This crate gets its inputs from the store and from publishers.

pub mod asset_hashes;
pub mod cluster_files;
mod derivation;
pub mod nodeup_config;
mod store_files;

pub use derivation::{Derivation, Derived, Incomplete, Proof};
pub use store_files::{StoreFile, StoreFiles, each};
