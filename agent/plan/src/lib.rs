//! Deciding what a node must be.
//!
//! Pure: what kOps wrote ([`spec`]) and what was observed of the machine ([`facts`]) go in, a
//! description of the whole node ([`resource::DesiredState`]) comes out, and the difference to what
//! is there is a value too. No I/O, no clock, no randomness, no environment, no hash order:
//! `clippy.toml` beside this crate bans them. Doing is `agent/host`'s.

pub mod bootstrap;
pub mod derive;
pub mod desired;
pub mod diff;
pub mod explain;
pub mod health;
pub mod identity;
pub mod labels;
pub mod lifecycle_action;
pub mod resolve;
pub mod resource;
pub mod takeover;
pub mod unit_files;

pub use kops_agent_spec as spec;
pub use kops_agent_spec::{facts, fnv, go_yaml, urls};
