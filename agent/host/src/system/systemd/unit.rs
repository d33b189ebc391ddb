//! What systemd knows of a unit, and what a job has it do.

use std::pin::Pin;
use std::time::SystemTime;

use kops_agent_plan::diff::Enablement;

use crate::error::Result;

/// What systemd knows of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitState {
    /// Whether there is such a unit.
    pub is_known: bool,
    /// Whether it starts at boot.
    pub enablement: Enablement,
    /// Whether it runs, or has done what it is for.
    pub running: bool,
    /// Whether it is at rest, and did not fail.
    pub rests: Rest,
    /// Whether it has failed, and systemd is going to start it again after a while: nothing of it runs, though there is
    /// nothing to start.
    pub restarting: bool,
    /// Whether a process of it has begun to start it, and is not done yet.
    pub starting: bool,
    /// When its main process was started; `None` where it has none, or had none since the machine started.
    pub started: Option<SystemTime>,
    /// Whether a file of it was changed since systemd read it (`NeedDaemonReload`).
    pub unread: bool,
}

impl UnitState {
    /// One that systemd does not know.
    pub const UNKNOWN: UnitState = UnitState {
        is_known: false,
        enablement: Enablement::Disabled,
        running: false,
        rests: Rest::Yes,
        restarting: false,
        starting: false,
        started: None,
        unread: false,
    };

    /// One that systemd knows, and that runs or rests.
    pub fn known(enablement: Enablement, running: bool) -> UnitState {
        let rests = if running { Rest::No } else { Rest::Yes };
        UnitState { is_known: true, enablement, running, rests, ..UnitState::UNKNOWN }
    }
}

/// Whether a unit is at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// It runs, or has failed.
    #[default]
    No,
    Yes,
    /// Nothing of it runs, and it is one that runs once (`Type=oneshot`): whether it has, systemd forgets as soon as no
    /// other unit names it (systemd.unit(5), "Unit Garbage Collection").
    RunsOnce,
}

/// What a job has a unit do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Start,
    /// Stop, if it runs.
    Stop,
    Restart,
}

impl Act {
    /// The verb of `systemctl`.
    pub fn name(self) -> &'static str {
        match self {
            Act::Start => "start",
            Act::Stop => "stop",
            Act::Restart => "restart",
        }
    }
}

/// A job of systemd's that has been asked for, and how it ends. Dropped, the job goes on all the same.
pub type Job = Pin<Box<dyn Future<Output = Result<()>> + Send>>;
