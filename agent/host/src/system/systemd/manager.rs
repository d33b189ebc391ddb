//! What systemd can be asked to do.

use std::collections::BTreeSet;

use super::unit::{Act, Job, UnitState};
use crate::error::Result;

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

    /// Lets a unit start at boot, which systemd knows once it has read its files again: many units cost one [`Systemd::reload`].
    ///
    /// # Errors
    /// systemd refuses.
    fn enable(&self, unit: &str) -> Result<()>;

    /// Keeps a unit from starting at boot, which systemd knows as for [`Systemd::enable`].
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

    /// Has a program run apart from this one, as a unit that is gone once it has ended, and does not wait for it. Where that unit
    /// runs already, it goes on. What manages no processes has nothing to run it.
    ///
    /// # Errors
    /// systemd refuses.
    fn run_apart(&self, unit: &str, command: &[&str]) -> Result<()> {
        let _ = (unit, command);
        Ok(())
    }

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
