//! The requests to systemd.

use std::collections::BTreeSet;

use super::unit::{Act, Job, UnitState};
use crate::error::Result;

pub trait Systemd: Send + Sync {
    /// The states of `units`, in the order of `units`.
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>>;

    /// Makes systemd read all unit files again.
    fn reload(&self) -> Result<()>;

    /// Enables a unit at boot. systemd notices the change only after [`Systemd::reload`], so many units need only
    /// one reload.
    fn enable(&self, unit: &str) -> Result<()>;

    /// Disables a unit at boot. systemd notices the change only after [`Systemd::reload`].
    fn disable(&self, unit: &str) -> Result<()>;

    /// Starts a unit and waits until it runs.
    fn start(&self, unit: &str) -> Result<()>;

    /// Requests the start of a unit and does not wait for it.
    fn enqueue_start(&self, unit: &str) -> Result<()> {
        self.start(unit)
    }

    /// Stops a unit and waits until it has stopped.
    fn stop(&self, unit: &str) -> Result<()>;

    /// Kills all processes of a unit immediately, whatever its state. A unit without processes is no error.
    fn kill(&self, unit: &str) -> Result<()>;

    /// Restarts a unit and waits until it runs.
    fn restart(&self, unit: &str) -> Result<()>;

    /// Starts a program as a transient unit and does not wait for its end. The unit disappears when the program ends.
    /// If the unit already runs, nothing changes. The default implementation does nothing.
    fn run_apart(&self, unit: &str, command: &[&str]) -> Result<()> {
        let _ = (unit, command);
        Ok(())
    }

    /// Requests a reboot of the machine and does not wait for it. The default implementation does nothing.
    fn reboot(&self) -> Result<()> {
        Ok(())
    }

    /// Requests a job and returns immediately. A job may wait for other jobs, even for the job that runs the agent. A
    /// job may take any time, because a oneshot has no timeout (systemd.service(5), `TimeoutStartSec=`).
    fn begin(&self, act: Act, unit: &str) -> Job {
        Box::pin(std::future::ready(match act {
            Act::Start => self.start(unit),
            Act::Stop => self.stop(unit),
            Act::Restart => self.restart(unit),
        }))
    }

    /// Whether a unit is starting, with a running process. The result is false for a unit whose job is only queued, and
    /// for a failed unit that waits for its restart.
    fn is_starting(&self, unit: &str) -> Result<bool> {
        let _ = unit;
        Ok(false)
    }

    /// Whether the start of a unit waits for the end of this run, directly or through a unit in `left`. The units in
    /// `left` already wait for this run.
    fn waits_for_this_run(&self, unit: &str, left: &BTreeSet<String>) -> Result<bool> {
        let _ = (unit, left);
        Ok(false)
    }
}
