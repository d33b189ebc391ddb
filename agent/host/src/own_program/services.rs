//! The services that run the agent's program all the time. A service runs another version only after its restart.

use std::time::{Duration, Instant, SystemTime};

use kops_agent_plan::diff::Enablement;
use kops_agent_plan::health::of_unit;
use tokio::time::{sleep, timeout};

use crate::error::{Error, Result};
use crate::host::Host;
use crate::system::systemd::{Act, Rest, UnitState};
use crate::waits::late;

/// The maximum difference between two observations of one start time. The observed time depends on the clock, which may be corrected
/// between the observations.
const JITTER: Duration = Duration::from_secs(2);

/// A service that runs the program or should run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub unit: String,
    /// Whether the service was healthy before the program was replaced. An unhealthy service may also fail afterwards, because the new
    /// program may be the attempt to repair the service.
    pub(super) was_healthy: bool,
}

impl Host {
    /// Returns the units among `units` that run or should run, before a switch. A unit should run if systemd is restarting it, or if it is
    /// enabled and has failed.
    pub fn services(&self, units: &[&str]) -> Result<Vec<Service>> {
        let states = self.systemd.states(units)?;
        let services = units.iter().zip(states).filter(|(_, state)| should_run(state));
        let service = |(unit, state): (&&str, UnitState)| Service {
            unit: (*unit).to_owned(),
            was_healthy: runs(&state),
        };
        Ok(services.map(service).collect())
    }

    /// Like [`Host::services`], but for the time after the switch to the program with this SHA-256. The recorded note about this switch
    /// says which services were unhealthy before the switch.
    pub fn services_after(&self, sha256: &str, units: &[&str]) -> Result<Vec<Service>> {
        let noted = self.noted(sha256)?;
        let mut services = self.services(units)?;
        for service in &mut services {
            service.was_healthy = !noted.unhealthy.contains(&service.unit);
        }
        Ok(services)
    }

    /// Restarts each service that does not run, or that started before the program at this path was installed. Then waits until each
    /// service has run for longer than systemd's restart delay. Fails if a service that was healthy before the switch does not start or
    /// does not continue to run. If the service was already unhealthy, only warns.
    pub async fn restart_on_program(&self, program: &str, services: &[Service]) -> Result<()> {
        let placed = self.program_placed(program)?;
        let is_older = |began: SystemTime| placed.is_some_and(|placed| began < placed);
        self.restart_services(services, |state| runs(state) && !state.started.is_some_and(is_older)).await
    }

    /// Restarts all of these services. Fails as [`Host::restart_on_program`] does.
    pub async fn restart_all(&self, services: &[Service]) -> Result<()> {
        self.restart_services(services, |_| false).await
    }

    /// Restarts the services, except services for whose state `is_fresh` returns true. If a restart fails, continues with the next
    /// service.
    async fn restart_services(
        &self,
        services: &[Service],
        is_fresh: impl Fn(&UnitState) -> bool,
    ) -> Result<()> {
        let mut failed: Option<Error> = None;
        let mut started = Vec::new();
        for service in services {
            match self.restart_unless(&service.unit, &is_fresh).await {
                Ok(()) => started.push(service),
                Err(error) => judge(service, error, &mut failed),
            }
        }
        for service in started {
            if let Err(error) = self.stays_active(&service.unit).await {
                judge(service, error, &mut failed);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn restart_unless(&self, unit: &str, is_fresh: &impl Fn(&UnitState) -> bool) -> Result<()> {
        if self.systemd.states(&[unit])?.iter().all(is_fresh) {
            return Ok(());
        }
        log::info!("restarting {unit}, so that it runs the installed program");
        let restarted = timeout(self.waits.awaited, self.systemd.begin(Act::Restart, unit)).await;
        restarted.map_err(|_| late(Act::Restart, unit, self.waits.awaited))?
    }

    /// Waits until one process of the unit has run for longer than systemd's restart delay (`RestartSec`). Before the end of this delay, a
    /// failed unit does not look failed: systemd reports it as `activating`.
    async fn stays_active(&self, unit: &str) -> Result<()> {
        let unhealthy = |why: &str| self.unhealthy(&of_unit(unit, &|_| None), why);
        let begun = Instant::now();
        let mut since: Option<(Instant, Option<SystemTime>)> = None;
        loop {
            let states = self.systemd.states(&[unit])?;
            let state = states.first().copied().unwrap_or(UnitState::UNKNOWN);
            match since {
                Some((_, started)) if !runs(&state) || !is_same(started, state.started) => {
                    return Err(unhealthy("it has ended again after its restart"));
                }
                Some((since, _)) if since.elapsed() >= self.health_timings.restarted => return Ok(()),
                Some(_) => {}
                None if runs(&state) => since = Some((Instant::now(), state.started)),
                None if state.starting && begun.elapsed() < self.health_timings.timeout => {}
                None => return Err(unhealthy("it does not run after its restart")),
            }
            sleep(self.health_timings.pause).await;
        }
    }
}

/// Whether a process of the unit runs and has finished its start.
fn runs(state: &UnitState) -> bool {
    state.running && !state.restarting && !state.starting
}

/// Whether two observed start times belong to the same start of a unit.
fn is_same(before: Option<SystemTime>, now: Option<SystemTime>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => {
            now.duration_since(before).unwrap_or_else(|error| error.duration()) <= JITTER
        }
        (before, now) => before == now,
    }
}

fn should_run(state: &UnitState) -> bool {
    let has_failed = state.is_known && !state.running && state.rests == Rest::No;
    state.running
        || state.restarting
        || state.starting
        || has_failed && state.enablement == Enablement::Enabled
}

/// Keeps the first failure of a service that was healthy before the switch.
fn judge(service: &Service, error: Error, failed: &mut Option<Error>) {
    if service.was_healthy {
        failed.get_or_insert(error);
    } else {
        log::warn!("{} was not healthy before the switch either: {error}", service.unit);
    }
}
