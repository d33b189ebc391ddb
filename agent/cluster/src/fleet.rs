//! Reports of a cluster's nodes about their configurations. A node writes conditions and annotations into its own Node,
//! including the certificate that expires first, and the change to the next configuration of its group. `rows` summarizes the
//! Nodes of a cluster, and `groups` the changes of each instance group. [`table`] and [`plan_table`] make tables of them.

pub(crate) mod annotation;
mod authorities;
mod certificate;
mod condition;
mod early_warning;
mod groups;
mod machine;
mod message;
mod next;
pub mod plan_table;
mod program;
mod reboot;
mod rows;
pub mod table;

pub(crate) use authorities::different_authorities;
pub use authorities::{AUTHORITIES, authorities_digest, read_authorities};
pub use certificate::{FEW_DAYS, FIRST_CERTIFICATE, FirstCertificate, SeenCertificate};
pub use condition::{
    AGENT_VERSION, CONDITION, CONTROLLER, CurrentCondition, CurrentConditions, FOLLOWED_FROM, NodeReport,
    RUNNING, Statement, Trouble, removed_warnings,
};
pub use early_warning::{
    CERTIFICATE_EXPIRES_SOON, CLOCK_UNSYNCHRONIZED, DISK_PRESSURE_SOON, EARLY_WARNINGS, EarlyWarning,
    WarningReason,
};
pub use groups::{GroupPlan, NodePlan, State, groups, named};
pub use machine::{
    MACHINE, MachineComparison, ObservedMachine, WANTED_MACHINES, WANTED_MACHINES_KEY, WantedMachine,
    WantedMachines,
};
pub use message::{Configuration, Told, short_hash};
pub use next::{NEXT, Next, NextPlan, Outcome};
pub use program::{PROGRAM, ProgramReport, ReportedProgram, reported_program};
pub(crate) use reboot::is_boot_id;
pub use reboot::{REBOOT_REQUIRED, RebootReport, known_boot_id, reboot_required, reports_reboots};
pub use rows::{Row, SeenCondition, SeenNode, rows};
