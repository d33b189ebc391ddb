//! Health checks of components: for a run that changes a working node.

mod last_words;
mod listening;
pub(crate) mod machine;

use std::time::Duration;

use kops_agent_plan::health::{Check, Component, StaticPod};
use kops_agent_plan::resource::ResourceId;
use kops_agent_spec::failure::{Failure, Kind};

#[async_trait::async_trait]
pub trait Health: Send + Sync {
    /// Runs one check of kind `Answers` or `Runtime` once. The error says why the component is not healthy.
    async fn ask(&self, check: &Check) -> Result<(), Failure>;

    /// Finds a process that does not belong to the unit and listens at the unit's health URL. Returns a description of
    /// the process; `None` if no such process is known. A health check would reach this process and not the unit.
    fn other_listener(&self, _url: &str, _unit: &str) -> Option<String> {
        None
    }

    /// The UID of a static pod whose containers all run. The error says why the pod does not run. `None` if the UID
    /// cannot be read, for example without `ctr`.
    fn pod_uid(&self, pod: &StaticPod, socket: &str) -> Result<Option<String>, Failure>;

    /// The log lines that give the reason for a component's last failed start. If no line gives a reason, the last
    /// lines of the log.
    fn last_words(&self, resource: &ResourceId) -> Vec<String>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthTimings {
    /// Timeout for each component to become healthy. Zero disables the check and the rollback.
    pub timeout: Duration,
    pub pause: Duration,
    /// How long a component must stay healthy. systemd restarts a service two seconds after it failed, so a
    /// component that crashes on start may look healthy for a moment.
    pub steady: Duration,
    /// How long kubelet may take to restart a pod after a change of its manifest. kubelet lists manifests every 20 s
    /// and gives pods 30 s to end. If the pod then still has its old UID, kubelet does not restart the pod for the
    /// change.
    pub unnoticed: Duration,
    /// How long a restarted service of the agent must run before it counts as healthy. This is longer than systemd's
    /// restart delay (`RestartSec=5s`). A service that fails at its start ends sooner.
    pub restarted: Duration,
}

impl Default for HealthTimings {
    fn default() -> HealthTimings {
        HealthTimings {
            // kubelet also gives the API server 300 s to start (30 probes, one every 10 s).
            timeout: Duration::from_secs(300),
            pause: Duration::from_millis(250),
            steady: Duration::from_secs(3),
            unnoticed: Duration::from_secs(60),
            restarted: Duration::from_secs(30),
        }
    }
}

pub fn unhealthy(why: impl Into<String>) -> Failure {
    Failure::new(Kind::Unhealthy, why)
}

/// The UID of a component's running pod. `None` if the component is not a pod, or if the pod does not run.
pub(crate) fn running_pod(health: &dyn Health, component: &Component) -> Option<String> {
    component.checks.iter().find_map(|check| match check {
        Check::Pod { pod, socket } => health.pod_uid(pod, socket).ok().flatten(),
        _ => None,
    })
}
