//! Timeouts of systemd jobs, and the error of a job that exceeds its timeout.

use std::time::Duration;

use crate::error::Error;
use crate::system::systemd::Act;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// Timeout of a unit that pods wait for. Most units have a shorter timeout of their own. A oneshot has none, and
    /// may format a disk or build a driver.
    pub awaited: Duration,
    /// Total timeout of all units that pods do not wait for. The run waits for these units at its end. If such a unit
    /// fails later, the next run reports the failure.
    pub others: Duration,
    /// Timeout of the pull or load of an image. It equals the time for which upstream retries a task (`RunTasksOptions`
    /// in upup/pkg/fi/executor.go). After the load of an archive has timed out, the timeout of each later archive is
    /// only `others`.
    pub image: Duration,
    /// How long a machine that is not a node yet waits for its API server. Pods that exit without an API server start
    /// after the API server answers ([`kops_agent_plan::late_pods`]). With zero, they start together with all other
    /// pods.
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

/// The error of a unit whose job exceeds its timeout.
pub(crate) fn late(act: Act, unit: &str, timeout: Duration) -> Error {
    Error::Unit {
        doing: act.name(),
        unit: unit.to_owned(),
        reason: format!(
            "its job has not finished within {} s, and this run no longer waits for it; see `systemctl list-jobs` and \
             `journalctl -u {unit}`",
            timeout.as_secs()
        ),
    }
}
