//! Deciding what a node must be.
//!
//! Pure: what kOps wrote ([`kops_agent_spec`]) and what was observed of the machine ([`kops_agent_spec::facts`]) go in, a
//! description of the whole node ([`resource::DesiredState`]) comes out, and the difference to what
//! is there is a value too. No I/O, no clock, no randomness, no environment, no hash order:
//! `clippy.toml` beside this crate bans them. Doing is `agent/host`'s.

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
pub mod settings;
pub mod shown;
mod static_pod;
pub mod supposed;
pub mod takeover;
pub mod timeline;
mod timestamp;
pub mod unit_files;

pub use timestamp::timestamp;
