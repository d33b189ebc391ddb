//! Where a node's configuration comes from: the state store, as kOps wrote it or derived from the cluster spec, or
//! kops-controller, for machines that do not read the store.
//!
//! [`read`] reads everything that decides a node. Control-plane mode serves the configurations of [`Derivation`] and
//! [`nodeup_config`] to machines that do not read the store. `kops_agent_plan::derive` derives, and is pure. This crate gets its
//! inputs from the store and from publishers.

pub mod asset_hashes;
mod before;
pub mod bootstrap_client;
pub mod cluster_files;
mod config_server;
mod configuration;
mod derivation;
pub mod failure;
mod node_spec;
pub mod nodeup_config;
mod options;
mod origin;
mod reading;
mod store_files;
mod without_store;

pub use before::Before;
pub use derivation::{Derivation, Derived, Incomplete, Proof};
pub use node_spec::{Denied, NodeSpec, trust_the_boot_configs_authority};
pub use options::{
    BOOT_CONFIG_OF_TOOLBOX, ConfigFrom, OnHashMismatch, SourceOptions, StoreOptions, default_conf,
};
pub use origin::Origin;
pub use reading::{boot_config, read, read_of_derivation, read_of_group};
pub use store_files::{StoreFile, StoreFiles, each};
pub use without_store::{SupposedKeyset, suppose};
