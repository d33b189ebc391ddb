//! Timeouts of systemd's jobs, and the error of one that takes longer.

use std::time::Duration;

use crate::error::Error;
use crate::system::systemd::Act;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// For a unit that pods wait for. Most have timeouts of their own that are shorter; a oneshot has none, and may
    /// format a disk or build a driver.
    pub awaited: Duration,
    /// For all others together, after everything else is done: what fails early is told by the run, what fails later by
    /// systemd and the next run.
    pub others: Duration,
    /// For an image to be pulled or loaded. As long as upstream tries a task (`RunTasksOptions` in
    /// upup/pkg/fi/executor.go). Once one has taken all of it, those that kubelet waits for have as long as `others`.
    pub image: Duration,
    /// For the API server of a machine that is no node yet, before the pods are started that end where it does not answer
    /// ([`kops_agent_plan::late_pods`]); zero where those are started with all others.
    pub api_server: Duration,
}

impl Default for Waits {
    fn default() -> Waits {
        Waits {
            awaited: Duration::from_secs(15 * 60),
            others: Duration::from_secs(15),
            image: Duration::from_secs(10 * 60),
            api_server: Duration::ZERO,
        }
    }
}

/// What is told of a unit whose job has not come to its end in time.
pub(crate) fn late(act: Act, unit: &str, timeout: Duration) -> Error {
    Error::Unit {
        doing: act.name(),
        unit: unit.to_owned(),
        reason: format!(
            "it has not come to its end within {} s, and is not waited for any longer; see `systemctl list-jobs` and \
             `journalctl -u {unit}`",
            timeout.as_secs()
        ),
    }
}
