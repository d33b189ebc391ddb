//! Node mode, top to bottom: one way with different ends.
//!
//! | step | file | in → out |
//! | --- | --- | --- |
//! | 1 to 3 | [`facts`], [`spec`] | boot config, facts, store → everything that decides the node |
//! | 4 and 5 | [`decide`] | that → the node and all that it must have, or all that is wrong |
//! | 6 and 7 | [`plan`] | that and this machine → what is to be done |
//! | 8 | [`apply`] | that → this machine is the node |
//!
//! `render` stops after deciding, `plan` after comparing, `converge` goes on. Where a node cannot be decided or applied,
//! [`last_applied`] takes the place of the decision. [`convergence`] is what belongs to a run besides, and [`condition`] what the cluster is told at
//! its end. [`pacing`] has a run wait where a change would disrupt a node that works while others of its group are disrupted.

mod addons_service;
pub mod apply;
pub mod certificates;
pub mod condition;
mod controller_service;
pub mod convergence;
pub mod decide;
pub mod environment;
pub mod facts;
pub mod last_applied;
pub mod machine;
pub mod materials;
pub mod options;
pub mod own_services;
pub mod pacing;
pub mod plan;
pub mod remembered;
mod remote;
pub mod renewal;
pub mod spec;
pub mod upkeep;
