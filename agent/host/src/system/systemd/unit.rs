//! The state of a unit, and the jobs for it.

use std::pin::Pin;
use std::time::SystemTime;

use kops_agent_plan::diff::Enablement;

use crate::error::Result;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitState {
    pub is_known: bool,
    /// Whether the unit starts at boot.
    pub enablement: Enablement,
    /// True if the unit runs, or if it is inactive because its work is done.
    pub running: bool,
    pub rests: Rest,
    /// Whether the unit has failed and systemd will restart it after a pause. No process runs now, but the agent need
    /// not start the unit.
    pub restarting: bool,
    /// Whether the unit is starting, with a running process.
    pub starting: bool,
    /// When the main process of the unit started. `None` if the unit has no main process, or had none since boot.
    pub started: Option<SystemTime>,
    /// Whether a unit file changed since systemd read it (`NeedDaemonReload`).
    pub unread: bool,
}

impl UnitState {
    /// The state of a unit that does not exist.
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

    /// The state of an existing unit that either runs or is inactive without a failure.
    pub fn existing(enablement: Enablement, running: bool) -> UnitState {
        let rests = if running { Rest::No } else { Rest::Yes };
        UnitState { is_known: true, enablement, running, rests, ..UnitState::UNKNOWN }
    }

    /// Whether the unit runs. `None` while a failed unit waits for its restart by systemd.
    pub(crate) fn runs(&self) -> Option<bool> {
        (!self.restarting).then_some(self.running)
    }
}

/// Whether a unit is inactive without a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// The unit runs or has failed.
    #[default]
    No,
    Yes,
    /// The unit is an inactive oneshot. It is unknown whether the oneshot has run: systemd forgets the run of a unit
    /// that no other unit refers to (systemd.unit(5), "Unit Garbage Collection").
    RunsOnce,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Start,
    /// Stops the unit. A stopped unit is no error.
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

/// The result of a requested job. If the future is dropped, the job continues.
pub type Job = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_a_unit_waits_for_its_restart_nothing_says_whether_it_runs() {
        let running = UnitState::existing(Enablement::Enabled, true);
        assert_eq!(running.runs(), Some(true));
        assert_eq!(UnitState { starting: true, ..running }.runs(), Some(true));
        assert_eq!(UnitState { restarting: true, ..running }.runs(), None);
        assert_eq!(UnitState::existing(Enablement::Enabled, false).runs(), Some(false));
        assert_eq!(UnitState::UNKNOWN.runs(), Some(false));
    }
}
