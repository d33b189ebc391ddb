//! Decides about the cluster: which machine a node is, which labels it gets, whether it may join, be disrupted or follow a new configuration,
//! and which add-ons the cluster has.
//!
//! This crate is pure, like `agent/plan`, which decides about one node and uses this crate for names that both sides of the bootstrap
//! protocol know. `agent/controller` executes the decisions.

pub mod addons;
pub mod bootstrap;
pub mod fleet;
pub mod identity;
pub mod labels;
pub mod lifecycle_action;
pub mod machine_id;
pub mod pacing;
pub mod pod_ranges;
pub mod rollout;
pub mod takeover;
