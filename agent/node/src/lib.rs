//! Node mode: the steps that all commands share. Each command stops after a step of its own.
//!
//! | step | file | in → out |
//! | --- | --- | --- |
//! | 1 to 3 | [`facts`], [`spec`] | boot config, facts, store → everything that decides the node |
//! | 4 and 5 | [`decide`] | everything that decides the node → the node and all that it must have, or all mistakes |
//! | 6 and 7 | [`plan`] | all that the node must have, this machine → the plan |
//! | 8 | [`apply`] | the plan → this machine is the node |
//!
//! `render` stops after deciding, `plan` after comparing, and `converge` goes to the end. If a node cannot be decided or applied,
//! [`last_applied`] replaces the decision. [`run`] has the runs of `converge` and `verify`, and [`progress`] shows them. [`convergence`]
//! has the parts of a run around the plan, and [`condition`] reports to the cluster at the end of a run, with the change that [`next`]
//! has planned. [`pacing`] makes a run wait if its change would disrupt a working node while other nodes of its group are disrupted.
//! [`last_server`] keeps the last server at which machines bootstrap.
//!
//! [`follow`] waits for orders of a rollout. An order starts a run, a [`reboot`] of the machine, or an [`upgrade`] of kops-agent.
//! [`install_unit`] writes the unit that runs this program at boot, and [`reset`] is the way back to the machine without kops-agent.
//!
//! [`doctor`] and [`support`] examine a machine on which these steps may fail. [`explanation`] finds where a value on the machine comes
//! from. [`status`] has the text of a node's status, and [`metrics`] makes the node's metrics for node_exporter. [`config_derive`]
//! derives the configuration of a group. [`config_check`] and [`manifests`] list the [`findings`] about a configuration, and [`assets`]
//! lists all downloads and packages of a cluster's nodes.

// In this crate, `pub` means that other modules use an item. The only user of the crate is the binary.
#![allow(unreachable_pub)]

mod addons_service;
pub mod apply;
pub mod assets;
pub mod certificates;
pub mod condition;
pub mod config_check;
pub mod config_derive;
mod controller_service;
pub mod convergence;
pub mod decide;
pub mod doctor;
pub mod environment;
pub mod explanation;
pub mod facts;
pub mod failure;
pub mod findings;
pub mod follow;
pub mod install_unit;
pub mod kops_version;
pub mod last_applied;
pub mod last_server;
pub mod machine;
pub mod manifests;
pub mod materials;
pub mod metrics;
pub mod next;
pub mod options;
pub mod orders;
pub mod own_services;
pub mod pacing;
pub mod plan;
pub mod progress;
pub mod reboot;
pub mod redaction;
pub mod remembered;
mod remote;
pub mod renewal;
pub mod reset;
pub mod run;
mod service_program;
pub mod spec;
pub mod status;
pub mod support;
pub mod upgrade;
pub mod upkeep;
