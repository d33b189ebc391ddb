//! systemd, asked over the system bus or by `systemctl`.

mod bus;
mod machine;
mod state;
mod systemctl;
mod this_run;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::SystemTime;

use kops_agent_plan::diff::Enablement;

use crate::error::Result;

pub use bus::Bus;
pub use machine::Machine;
pub use systemctl::Systemctl;

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
    /// Nothing of it runs.
    Yes,
    /// Nothing of it runs, and it is one that runs once (`Type=oneshot`): whether it has, systemd forgets as soon as no
    /// other unit names it (systemd.unit(5), "Unit Garbage Collection").
    RunsOnce,
}

/// What a job has a unit do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Run, unless it does.
    Start,
    /// Stop, if it runs.
    Stop,
    /// Run anew.
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

/// The manager of units.
pub trait Systemd: Send + Sync {
    /// The states of these units, in their order.
    ///
    /// # Errors
    /// systemd cannot be asked.
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>>;

    /// Reads all unit files again.
    ///
    /// # Errors
    /// systemd cannot be asked.
    fn reload(&self) -> Result<()>;

    /// Lets a unit start at boot.
    ///
    /// # Errors
    /// systemd refuses.
    fn enable(&self, unit: &str) -> Result<()>;

    /// Keeps a unit from starting at boot.
    ///
    /// # Errors
    /// systemd refuses.
    fn disable(&self, unit: &str) -> Result<()>;

    /// Starts a unit, and waits until it runs.
    ///
    /// # Errors
    /// It does not start.
    fn start(&self, unit: &str) -> Result<()>;

    /// Has a unit start, and does not wait for it.
    ///
    /// # Errors
    /// systemd refuses to try.
    fn enqueue_start(&self, unit: &str) -> Result<()> {
        self.start(unit)
    }

    /// Stops a unit, and waits until it has stopped.
    ///
    /// # Errors
    /// It does not stop.
    fn stop(&self, unit: &str) -> Result<()>;

    /// Ends everything that still runs in a unit at once, stopped or not.
    ///
    /// # Errors
    /// systemd cannot be asked.
    fn kill(&self, unit: &str) -> Result<()>;

    /// Restarts a unit, and waits until it runs.
    ///
    /// # Errors
    /// It does not start again.
    fn restart(&self, unit: &str) -> Result<()>;

    /// Asks for a job and returns at once. A job may wait for others, of this very run even, or take as long as its unit
    /// likes: a oneshot has no timeout (systemd.service(5), `TimeoutStartSec=`).
    fn begin(&self, act: Act, unit: &str) -> Job {
        Box::pin(std::future::ready(match act {
            Act::Start => self.start(unit),
            Act::Stop => self.stop(unit),
            Act::Restart => self.restart(unit),
        }))
    }

    /// Whether a process of a unit has begun to start it, and is not done yet: one whose job only waits in the queue is
    /// not starting, nor is one that has failed and is started again later.
    ///
    /// # Errors
    /// systemd cannot be asked.
    fn is_starting(&self, unit: &str) -> Result<bool> {
        let _ = unit;
        Ok(false)
    }

    /// Whether the start of a unit waits for the end of this very run, or for units that were left to systemd because
    /// theirs do.
    ///
    /// # Errors
    /// systemd cannot be asked.
    fn waits_for_this_run(&self, unit: &str, left: &BTreeSet<String>) -> Result<bool> {
        let _ = (unit, left);
        Ok(false)
    }
}
