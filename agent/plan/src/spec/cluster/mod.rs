//! A cluster: everything in `cluster-completed.spec`.

pub(super) mod addons;
pub(super) mod aws;
pub(super) mod cloud;
pub(super) mod cloud_controller_manager;
pub(super) mod cluster_spec;
pub(super) mod dns;
pub(super) mod etcd;
pub(super) mod iam;

pub use addons::*;
pub use aws::*;
pub use cloud::*;
pub use cloud_controller_manager::*;
pub use cluster_spec::*;
pub use dns::*;
pub use etcd::*;
pub use iam::*;
