//! Waiting until a component is well, and stays so.

use std::time::{Duration, Instant};

use kops_agent_plan::health::{Check, Component};
use kops_agent_plan::resource::Kind;

use crate::error::{Error, Result};
use crate::host::Host;
use crate::system::systemd::Rest;

/// Which pod is expected where a static pod was changed: kubelet gives every manifest a UID of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected<'a> {
    Any,
    /// Another than this, which ran before.
    Other(&'a str),
    /// This, which ran before the change that is taken back.
    Same(&'a str),
}

/// Why a component is not known to be well.
enum Why {
    /// It is not, because of this.
    Unwell(String),
    /// This process listens where it should.
    OtherListener(String),
}

impl Host {
    /// Waits until all checks of a component hold, and go on to hold for a while.
    pub(crate) async fn wait_until_well(&self, component: &Component, expected: Expected<'_>) -> Result<()> {
        let timings = self.health_timings;
        // Of other units nothing is known but what systemd says, which waits for them itself.
        let is_asked = component.checks.iter().any(|check| !matches!(check, Check::Unit { .. }));
        let steady = if is_asked { timings.steady } else { Duration::ZERO };
        let start = Instant::now();
        let mut well_since = None;
        loop {
            match self.look(component, expected, start.elapsed()).await? {
                Ok(()) => {
                    if well_since.get_or_insert_with(Instant::now).elapsed() >= steady {
                        return Ok(());
                    }
                }
                Err(why) if start.elapsed() >= timings.timeout => {
                    return Err(match why {
                        Why::Unwell(why) => self.unwell(component, &why),
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

    /// Why a component is not healthy; `None` once it is at any time in as long as a component has to be healthy to count
    /// as such.
    pub(crate) async fn why_unhealthy(&self, component: &Component) -> Result<Option<String>> {
        let start = Instant::now();
        loop {
            match self.look(component, Expected::Any, start.elapsed()).await? {
                Ok(()) | Err(Why::OtherListener(_)) => return Ok(None),
                Err(Why::Unwell(why)) if start.elapsed() >= self.health_timings.steady => {
                    return Ok(Some(why));
                }
                Err(Why::Unwell(_)) => tokio::time::sleep(self.health_timings.pause).await,
            }
        }
    }

    /// Asks by every check once; what is wrong by the first that does not hold.
    async fn look(
        &self,
        component: &Component,
        expected: Expected<'_>,
        waited: Duration,
    ) -> Result<Result<(), Why>> {
        for check in &component.checks {
            let answer = match check {
                // One that runs once has, or systemd had not said that it was started.
                Check::Unit { name } => match self
                    .systemd
                    .states(&[name])?
                    .iter()
                    .all(|state| state.running || state.rests == Rest::RunsOnce)
                {
                    true => Ok(()),
                    false => Err("systemd says that it does not run".to_owned()),
                },
                Check::Pod { pod, socket } => match self.health.pod_uid(pod, socket) {
                    Ok(Some(uid)) => self.is_expected(&uid, expected, waited),
                    Ok(None) => Ok(()),
                    Err(why) => Err(why),
                },
                Check::Runtime { .. } | Check::Answers { .. } => self.health.ask(check).await,
            };
            // Whatever it answers: another process may say that all is well, or that nothing is.
            if let Check::Answers { url } = check
                && component.resource.kind == Kind::Unit
                && let Some(listener) = self.health.other_listener(url, &component.resource.name)
            {
                return Ok(Err(Why::OtherListener(listener)));
            }
            if let Err(why) = answer {
                return Ok(Err(Why::Unwell(why)));
            }
        }
        Ok(Ok(()))
    }

    fn is_expected(&self, uid: &str, expected: Expected<'_>, waited: Duration) -> Result<(), String> {
        match expected {
            Expected::Other(before) if uid == before && waited < self.health_timings.unnoticed => {
                Err("kubelet still runs the pod of the manifest before".into())
            }
            Expected::Same(before) if uid != before && waited < self.health_timings.unnoticed => {
                Err("kubelet still runs the pod of the manifest that is taken back".into())
            }
            _ => Ok(()),
        }
    }

    /// The error for a component that is not well.
    pub(crate) fn unwell(&self, component: &Component, why: &str) -> Error {
        let resource = &component.resource;
        let words = self.health.last_words(resource);
        let mut why = why.to_owned();
        if !words.is_empty() {
            why.push_str(&format!("; its last words: {}", words.join(" | ")));
        }
        let look_at = match resource.kind {
            Kind::Unit => format!("`journalctl -u {}`", resource.name),
            _ => "the pod's folder in /var/log/pods".to_owned(),
        };
        Error::Unwell { resource: resource.clone(), why, look_at }
    }
}
