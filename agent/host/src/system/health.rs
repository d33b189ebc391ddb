//! Asking components how they are, and waiting until they are well: for a run that changes a node which works.

mod listening;
pub(crate) mod machine;

use std::pin::Pin;
use std::time::Duration;

use kops_agent_plan::health::{Check, Component, StaticPod};
use kops_agent_plan::resource::ResourceId;

/// Asks the components of a node how they are.
pub trait Health: Send + Sync {
    /// Asks once by a check that is neither of a unit nor of a pod; what is wrong if they are not well.
    fn ask<'a>(&'a self, check: &'a Check) -> Asking<'a>;

    /// Which process besides those of a unit listens where the unit is to be asked, in words; `None` where none does that
    /// is known of. What such a process answers says nothing of the unit.
    fn other_listener(&self, _url: &str, _unit: &str) -> Option<String> {
        None
    }

    /// The UID under which all containers of a static pod run, or what is wrong. `None` where that cannot be told.
    fn pod_uid(&self, pod: &StaticPod, socket: &str) -> Result<Option<String>, String>;

    /// The last lines that a component wrote, if it wrote any.
    fn last_words(&self, resource: &ResourceId) -> Vec<String>;
}

/// An answer that is on its way; where it is a failure, it says what is wrong.
pub type Asking<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Timeout and interval of health checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthTimings {
    /// Timeout of each component. Zero: no check, and no rollback.
    pub timeout: Duration,
    pub pause: Duration,
    /// For how long a component has to be healthy: one that ends soon after it started is started again by systemd after
    /// two seconds.
    pub steady: Duration,
    /// After which time kubelet, which lists its files every 20 s and gives pods 30 s to end, has seen a manifest that
    /// it lets run on as before: it makes no difference to it.
    pub unnoticed: Duration,
}

impl Default for HealthTimings {
    fn default() -> HealthTimings {
        HealthTimings {
            // As long as kubelet itself gives the API server to start (30 times 10 s).
            timeout: Duration::from_secs(300),
            pause: Duration::from_millis(250),
            steady: Duration::from_secs(3),
            unnoticed: Duration::from_secs(60),
        }
    }
}

/// The UID under which the pod of a component runs, if it does.
pub(crate) fn running_pod(health: &dyn Health, component: &Component) -> Option<String> {
    component.checks.iter().find_map(|check| match check {
        Check::Pod { pod, socket } => health.pod_uid(pod, socket).ok().flatten(),
        _ => None,
    })
}
