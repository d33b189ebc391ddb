//! Decides the desired state of a node.
//!
//! This crate is pure. Its input is the configuration that kOps wrote ([`kops_agent_spec`]) and the observed facts of the machine
//! ([`kops_agent_spec::facts`]). Its output is a description of the whole node ([`resource::DesiredState`]). The difference to the present
//! state is a value too. This crate has no I/O, clock, randomness, environment or hash order: its `clippy.toml` bans them. `agent/host`
//! executes the result.

pub mod derive;
pub mod desired;
pub mod diff;
pub mod disruption;
pub mod doctor;
pub mod early_units;
pub mod explain;
pub mod following;
pub mod health;
pub mod late_pods;
pub mod needs;
pub mod overlap;
pub mod resolve;
pub mod resource;
pub mod settings;
pub mod shown;
mod static_pod;
pub mod supposed;
pub mod timeline;
pub mod unit_files;
