//! What kOps wrote: its own API, by its own names.
//!
//! Two files decide a node in the usual way: the boot config in the user-data ([`BootConfig`]) and
//! the group's `nodeupconfig.yaml` ([`NodeupConfig`]). The rest of the state store
//! ([`Cluster`], [`InstanceGroup`], [`Keyset`], [`Secret`]) is what that file is derived from.
//!
//! Field names are the JSON names of kOps' internal API in snake case. What Go has as a pointer is
//! an `Option`, and writing a value leaves out exactly what Go's `omitempty` leaves out. Unknown
//! fields pass; a wrong type fails with the field's path and the file's URL ([`SpecError`]).
//!
//! What is observed of a machine stands beside it ([`facts`]): the two together are all that a decision knows. So do
//! Go's YAML, which kOps' hashes are made over ([`go_yaml`]), and what its names and URLs follow ([`fnv`], [`urls`]). Untrusted
//! text is made fit to be shown here ([`terminal`]), as errors are ([`causes`]).
//!
//! Pure, as `agent/plan`: `clippy.toml` beside this crate bans effects.

mod api;
mod authentication;
mod boot_config;
mod calico;
pub mod causes;
mod cilium;
mod cloud_provider;
mod cluster;
mod containerd;
mod customization;
mod duration;
mod error;
pub mod facts;
mod field_names;
mod field_warnings;
pub mod fnv;
pub mod free_text;
mod go_value;
pub mod go_yaml;
mod instance_group;
mod keyset;
mod kops_controller;
mod kube_apiserver;
mod kube_controller_manager;
mod kube_proxy;
mod kube_scheduler;
mod kubelet;
mod metadata;
mod network_plugins;
mod networking;
mod nodeup_config;
pub mod omit;
mod openstack;
mod quantity;
mod respell;
mod role;
mod scalars;
mod secret;
pub mod terminal;
pub mod urls;
mod user_data;
pub mod yaml;

pub use api::*;
pub use authentication::*;
pub use boot_config::*;
pub use calico::*;
pub use cilium::*;
pub use cloud_provider::*;
pub use cluster::*;
pub use containerd::*;
pub use customization::*;
pub use duration::*;
pub use error::*;
pub use field_names::field_names;
pub use field_warnings::FieldWarning;
pub use instance_group::*;
pub use keyset::{Certificate, Keyset, KeysetItem, PrivateMaterial};
pub use kops_controller::*;
pub use kube_apiserver::*;
pub use kube_controller_manager::*;
pub use kube_proxy::*;
pub use kube_scheduler::*;
pub use kubelet::*;
pub use metadata::ObjectMeta;
pub use network_plugins::*;
pub use networking::*;
pub use nodeup_config::*;
pub use openstack::*;
pub use role::*;
pub use scalars::*;
pub use secret::Secret;
pub use yaml::{parse_document, parse_yaml};
