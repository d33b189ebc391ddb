//! Types for the files that kOps writes, with kOps' own names.
//!
//! Usually two files decide a node: the boot config in the user-data ([`BootConfig`]) and the group's `nodeupconfig.yaml`
//! ([`NodeupConfig`]). kOps derives `nodeupconfig.yaml` from the rest of the state store ([`Cluster`], [`InstanceGroup`],
//! [`Keyset`], [`Secret`]).
//!
//! Field names are the JSON names of kOps' internal API in snake case. A pointer in Go is an `Option`. Writing a value leaves
//! out exactly the fields that Go's `omitempty` leaves out. Unknown fields are ignored. A wrong type is an error with the
//! field's path and the file's URL ([`SpecError`]).
//!
//! This crate also has the facts about a machine ([`facts`]). A decision depends only on the facts and on kOps' files.
//! [`go_yaml`] writes YAML as Go does, because kOps hashes such YAML. [`fnv`] and [`urls`] are for kOps' names and URLs.
//! [`terminal`], [`causes`] and [`redaction`] prepare untrusted text and errors for output.
//! [`kops_release`] has all differences between kOps releases.
//!
//! This crate is pure, like `agent/plan` and `agent/cluster`: their `clippy.toml` bans side effects.

mod api;
mod authentication;
mod boot_config;
mod calico;
pub mod causes;
pub mod certificate;
mod cilium;
mod cloud_provider;
mod cluster;
mod containerd;
mod customization;
pub mod digest;
mod duration;
mod error;
pub mod facts;
pub mod failure;
mod field_names;
mod field_warnings;
pub mod fnv;
pub mod free_text;
mod go_value;
pub mod go_yaml;
mod instance_group;
pub mod invalid;
mod keyset;
mod kops_controller;
pub mod kops_release;
mod kube_apiserver;
mod kube_controller_manager;
mod kube_proxy;
mod kube_scheduler;
mod kubelet;
pub mod manifests;
mod metadata;
mod network_plugins;
mod networking;
mod nodeup_config;
mod openstack;
mod quantity;
pub mod redaction;
mod respell;
mod role;
mod scalars;
mod secret;
pub mod terminal;
pub mod text_diff;
mod timestamp;
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
pub use timestamp::{parse_timestamp, timestamp};
pub use user_data::{additional_parts_of_group, additional_parts_of_machine, nodeup_urls};
pub use yaml::{parse_document, parse_yaml};
