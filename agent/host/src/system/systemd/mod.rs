//! systemd, asked over the system bus or by `systemctl`.

mod bus;
mod machine;
mod state;
mod systemctl;

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
}

impl UnitState {
    /// One that systemd does not know.
    pub const UNKNOWN: UnitState = UnitState {
        is_known: false,
        enablement: Enablement::Disabled,
        running: false,
        rests: Rest::Yes,
        restarting: false,
    };

    /// One that systemd knows, and that runs or rests.
    pub fn known(enablement: Enablement, running: bool) -> UnitState {
        let rests = if running { Rest::No } else { Rest::Yes };
        UnitState { is_known: true, enablement, running, rests, restarting: false }
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
}
