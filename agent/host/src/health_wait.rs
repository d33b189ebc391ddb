//! Waits until a component is healthy, and stays healthy.

use std::time::{Duration, Instant};

use kops_agent_plan::health::{Check, Component};
use kops_agent_plan::resource::Kind;
use kops_agent_spec::failure::Failure;

use crate::error::{Error, Result};
use crate::host::Host;
use crate::system::health::unhealthy;
use crate::system::systemd::Rest;

/// The pod that is expected after a change of a static pod. kubelet gives the pod a new UID for each version of its manifest.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected<'a> {
    Any,
    /// Another pod than before the change. The value is the UID of the pod before the change.
    Other(&'a str),
    /// The pod with this UID. It ran before the change that is being rolled back.
    Same(&'a str),
}

/// Why a component does not count as healthy.
enum Why {
    /// A check of the component fails, for this reason.
    Unhealthy(String),
    /// Another process listens at the component's address. The text describes this process.
    OtherListener(String),
}

impl Host {
    /// Waits until all checks of a component pass, and continue to pass for the time that a component must stay healthy.
    pub(crate) async fn wait_until_healthy(
        &self,
        component: &Component,
        expected: Expected<'_>,
    ) -> Result<()> {
        let timings = self.health_timings;
        // If only systemd reports the component's state, one success is enough, because systemd's job has already waited for the start.
        let is_asked = component.checks.iter().any(|check| !matches!(check, Check::Unit { .. }));
        let steady = if is_asked { timings.steady } else { Duration::ZERO };
        let start = Instant::now();
        let mut well_since = None;
        loop {
            match self.run_checks(component, expected, start.elapsed()).await? {
                Ok(()) => {
                    if well_since.get_or_insert_with(Instant::now).elapsed() >= steady {
                        return Ok(());
                    }
                }
                Err(why) if start.elapsed() >= timings.timeout => {
                    return Err(match why {
                        Why::Unhealthy(why) => self.unhealthy(component, &why),
                        Why::OtherListener(listener) => {
                            Error::Unasked { resource: component.resource.clone(), listener }
                        }
                    });
                }
                Err(_) => well_since = None,
            }
            tokio::time::sleep(timings.pause).await;
        }
    }

    /// Probes a component until a probe succeeds, or until the time `HealthTimings::steady` has passed. Returns why the component is
    /// unhealthy; `None` if a probe succeeded, or if another process listens at the component's address.
    pub(crate) async fn why_unhealthy(&self, component: &Component) -> Result<Option<String>> {
        let start = Instant::now();
        loop {
            match self.run_checks(component, Expected::Any, start.elapsed()).await? {
                Ok(()) | Err(Why::OtherListener(_)) => return Ok(None),
                Err(Why::Unhealthy(why)) if start.elapsed() >= self.health_timings.steady => {
                    return Ok(Some(why));
                }
                Err(Why::Unhealthy(_)) => tokio::time::sleep(self.health_timings.pause).await,
            }
        }
    }

    /// Runs every check once. Returns the problem of the first check that fails.
    async fn run_checks(
        &self,
        component: &Component,
        expected: Expected<'_>,
        waited: Duration,
    ) -> Result<Result<(), Why>> {
        for check in &component.checks {
            let answer = match check {
                // systemd reports a run-once unit as started only after the unit has run.
                Check::Unit { name } => match self
                    .systemd
                    .states(&[name])?
                    .iter()
                    .all(|state| state.running || state.rests == Rest::RunsOnce)
                {
                    true => Ok(()),
                    false => Err(unhealthy("systemd says that it does not run")),
                },
                Check::Pod { pod, socket } => match self.health.pod_uid(pod, socket) {
                    Ok(Some(uid)) => self.is_expected(&uid, expected, waited),
                    Ok(None) => Ok(()),
                    Err(why) => Err(why),
                },
                Check::Runtime { .. } | Check::Answers { .. } => self.health.ask(check).await,
            };
            // Look up the listener even if the check succeeds, because another process may have answered.
            if let Check::Answers { url } = check
                && component.resource.kind == Kind::Unit
                && let Some(listener) = self.health.other_listener(url, &component.resource.name)
            {
                return Ok(Err(Why::OtherListener(listener)));
            }
            if let Err(why) = answer {
                return Ok(Err(Why::Unhealthy(why.to_string())));
            }
        }
        Ok(Ok(()))
    }

    fn is_expected(&self, uid: &str, expected: Expected<'_>, waited: Duration) -> Result<(), Failure> {
        match expected {
            Expected::Other(before) if uid == before && waited < self.health_timings.unnoticed => {
                Err(unhealthy("kubelet still runs the pod of the previous manifest"))
            }
            Expected::Same(before) if uid != before && waited < self.health_timings.unnoticed => {
                Err(unhealthy("kubelet still runs the pod of the manifest that was rolled back"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn unhealthy(&self, component: &Component, why: &str) -> Error {
        let resource = &component.resource;
        let words = self.health.last_words(resource);
        let mut why = why.to_owned();
        if !words.is_empty() {
            why.push_str(&format!("; its last log lines: {}", words.join(" | ")));
        }
        let look_at = match resource.kind {
            Kind::Unit => format!("`journalctl -u {}`", resource.name),
            _ => "the pod's folder in /var/log/pods".to_owned(),
        };
        Error::Unhealthy { resource: resource.clone(), why, look_at }
    }
}
