//! This machine's systemd: over the system bus if there is one, otherwise by `systemctl`, which has other ways to
//! reach it. The bus may not run yet. It may also go away, for example if a package manager restarts it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::bus::{Bus, Failure};
use super::manager::Systemd;
use super::systemctl::Systemctl;
use super::this_run;
use super::unit::{Act, Job, UnitState};
use crate::error::Result;

/// The open connection of this process. Several [`Machine`]s of one run share it.
static CONNECTION: Mutex<Option<Arc<Bus>>> = Mutex::new(None);

/// This machine's systemd. The first request decides between bus and `systemctl`.
#[derive(Default)]
pub struct Machine {
    bus: OnceLock<Option<Arc<Bus>>>,
    is_lost: Arc<AtomicBool>,
}

impl Machine {
    fn bus(&self) -> Option<&Arc<Bus>> {
        if self.is_lost.load(Ordering::Relaxed) {
            return None;
        }
        let decide = || match connection() {
            Ok(bus) => {
                log::debug!("systemd is asked over the system bus");
                Some(bus)
            }
            Err(why) => {
                log::debug!("systemd is asked by systemctl: {why}");
                None
            }
        };
        self.bus.get_or_init(decide).as_ref()
    }

    /// Sends a request over the bus, or by `systemctl` if there is no bus. The argument of `by_systemctl` says whether
    /// systemd has already begun the job.
    fn ask<T>(
        &self,
        over_the_bus: impl FnOnce(&Bus) -> Result<T, Failure>,
        by_systemctl: impl FnOnce(bool) -> Result<T>,
    ) -> Result<T> {
        let Some(bus) = self.bus() else { return by_systemctl(false) };
        match over_the_bus(bus) {
            Ok(answer) => Ok(answer),
            Err(Failure::Refused(error)) => Err(error),
            Err(Failure::Lost { has_begun, why }) => {
                note_loss(&self.is_lost, bus, &why);
                by_systemctl(has_begun)
            }
        }
    }
}

impl Systemd for Machine {
    fn states(&self, units: &[&str]) -> Result<Vec<UnitState>> {
        self.ask(|bus| bus.states(units), |_| Systemctl.states(units))
    }

    fn reload(&self) -> Result<()> {
        self.ask(Bus::reload, |_| Systemctl.reload())
    }

    fn enable(&self, unit: &str) -> Result<()> {
        self.ask(|bus| bus.enable(unit), |_| Systemctl.enable(unit))
    }

    fn disable(&self, unit: &str) -> Result<()> {
        self.ask(|bus| bus.disable(unit), |_| Systemctl.disable(unit))
    }

    fn start(&self, unit: &str) -> Result<()> {
        self.ask(|bus| bus.start(unit), |_| Systemctl.start(unit))
    }

    fn enqueue_start(&self, unit: &str) -> Result<()> {
        self.ask(|bus| bus.enqueue_start(unit), |_| Systemctl.enqueue_start(unit))
    }

    fn stop(&self, unit: &str) -> Result<()> {
        self.ask(|bus| bus.stop(unit), |_| Systemctl.stop(unit))
    }

    fn kill(&self, unit: &str) -> Result<()> {
        self.ask(|bus| bus.kill(unit), |_| Systemctl.kill(unit))
    }

    fn restart(&self, unit: &str) -> Result<()> {
        let by_systemctl = |has_begun| match has_begun {
            // A start joins the running restart and waits for it.
            true => Systemctl.start(unit),
            false => Systemctl.restart(unit),
        };
        self.ask(|bus| bus.restart(unit), by_systemctl)
    }

    fn run_apart(&self, unit: &str, command: &[&str]) -> Result<()> {
        self.ask(|bus| bus.run_apart(unit, command), |_| Systemctl.run_apart(unit, command))
    }

    fn begin(&self, act: Act, unit: &str) -> Job {
        let Some(bus) = self.bus() else { return Systemctl.begin(act, unit) };
        let (job, unit, is_lost) = (bus.begin(act, unit), unit.to_owned(), Arc::clone(&self.is_lost));
        // Keeps the connection alive as long as the job.
        let bus = Arc::clone(bus);
        Box::pin(async move {
            match job.await {
                Ok(()) => Ok(()),
                Err(Failure::Refused(error)) => Err(error),
                Err(Failure::Lost { has_begun, why }) => {
                    note_loss(&is_lost, &bus, &why);
                    // A start joins the running restart and waits for it.
                    let is_restarted = act == Act::Restart && has_begun;
                    Systemctl.begin(if is_restarted { Act::Start } else { act }, &unit).await
                }
            }
        })
    }

    fn is_starting(&self, unit: &str) -> Result<bool> {
        self.ask(|bus| bus.is_starting(unit), |_| Systemctl.is_starting(unit))
    }

    fn waits_for_this_run(&self, unit: &str, left: &BTreeSet<String>) -> Result<bool> {
        this_run::is_waited_for_by(unit, left)
    }
}

/// Returns the open connection, or a new one.
fn connection() -> Result<Arc<Bus>, String> {
    let mut connection = CONNECTION.lock();
    if let Some(bus) = &*connection {
        return Ok(Arc::clone(bus));
    }
    let bus = Arc::new(Bus::connect()?);
    *connection = Some(Arc::clone(&bus));
    Ok(bus)
}

fn note_loss(is_lost: &AtomicBool, lost: &Arc<Bus>, why: &str) {
    // A newer connection may already be in place. It stays.
    CONNECTION.lock().take_if(|bus| Arc::ptr_eq(bus, lost));
    if !is_lost.swap(true, Ordering::Relaxed) {
        log::debug!("systemd is asked by systemctl from here on: {why}");
    }
}
