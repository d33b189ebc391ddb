//! Decides the desired state of a node.
//!
//! This crate is pure. Its input is the configuration that kOps wrote ([`kops_agent_spec`]) and the observed facts of the machine
//! ([`kops_agent_spec::facts`]). Its output is a description of the whole node ([`resource::DesiredState`]). The difference to the present
//! state is a value too. This crate has no I/O, clock, randomness, environment or hash order: its `clippy.toml` bans them. `agent/host`
//! executes the result.

pub mod addons;
mod base64_text;
pub mod bootstrap;
pub mod derive;
pub mod desired;
pub mod diff;
pub mod digest;
pub mod doctor;
pub mod early_units;
pub mod explain;
pub mod fleet;
pub mod following;
pub mod health;
pub mod identity;
pub mod kops_release;
pub mod labels;
pub mod late_pods;
pub mod lifecycle_action;
pub mod machine_id;
pub mod overlap;
pub mod pacing;
pub mod pod_ranges;
pub mod redaction;
pub mod resolve;
pub mod resource;
pub mod rollout;
pub mod settings;
pub mod shown;
mod static_pod;
pub mod supposed;
pub mod takeover;
pub mod timeline;
mod timestamp;
pub mod unit_files;

pub use timestamp::{parse_timestamp, timestamp};
