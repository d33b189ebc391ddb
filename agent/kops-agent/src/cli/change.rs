//! Flags for how a run changes a working node.

use std::time::Duration;

use clap::Args;

use kops_agent_cluster::pacing::message::MOST_SLOTS;
use kops_agent_node::options::{HostSettings, Pacing, default_of_max_unavailable};
use kops_agent_spec::failure::Failure;

use super::DrainArg;

/// The default of `--health-timeout`, in seconds: as long as kubelet gives the API server to start.
const HEALTH_TIMEOUT: u64 = 300;
/// The default of `--slot-timeout`, in seconds. The slot of a killed run expires after half of this time.
const SLOT_TIMEOUT: u64 = 600;
/// The default of `--drain-timeout`, in seconds.
const DRAIN_TIMEOUT: u64 = 300;

/// How a run changes a working node: beside how many others, whether it drains the node, and when it rolls back.
#[derive(Args, Clone, Copy, Debug)]
pub struct ChangeArgs {
    /// Seconds to wait for each changed component to become healthy before rolling back. 0 disables the wait and the
    /// rollback.
    #[arg(long = "health-timeout", alias = "health-patience", value_name = "SECONDS", default_value_t = HEALTH_TIMEOUT)]
    pub health_timeout: u64,

    /// Retry a configuration that was rolled back.
    #[arg(long)]
    pub retry_failed: bool,

    /// Remove kops-agent-controller.service even if no other server is left at which machines can bootstrap, or if the API
    /// server does not answer. Without this flag, a run that would remove the unit then ends with 1, and the last applied
    /// configuration stays.
    #[arg(long)]
    pub allow_no_server: bool,

    /// Number of nodes of this instance group whose kubelet, containerd, API server or etcd may restart at a time.
    /// Control planes always restart one at a time. 0 takes no slot, to repair a cluster that gives no slots. Default:
    /// KOPS_AGENT_MAX_UNAVAILABLE, or else 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(MOST_SLOTS)))]
    pub max_unavailable: Option<u32>,

    /// Seconds to wait for a slot. If the node gets no slot in this time, the run ends and changes nothing.
    #[arg(long, value_name = "SECONDS", default_value_t = SLOT_TIMEOUT)]
    pub slot_timeout: u64,

    /// Cordon this node and evict its pods before kubelet, containerd, the API server or etcd restarts, as
    /// PodDisruptionBudgets allow. Uncordon it afterwards. With `auto`, only for a minor upgrade of kubelet and a major
    /// upgrade of containerd.
    #[arg(long, value_enum, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_value = "never", default_missing_value = "always")]
    pub drain: DrainArg,

    /// Seconds that pods may take to leave; after that the run uncordons the node and changes nothing.
    #[arg(long, value_name = "SECONDS", default_value_t = DRAIN_TIMEOUT)]
    pub drain_timeout: u64,
}

impl Default for ChangeArgs {
    fn default() -> ChangeArgs {
        ChangeArgs {
            health_timeout: HEALTH_TIMEOUT,
            retry_failed: false,
            allow_no_server: false,
            max_unavailable: None,
            slot_timeout: SLOT_TIMEOUT,
            drain: DrainArg::Never,
            drain_timeout: DRAIN_TIMEOUT,
        }
    }
}

impl ChangeArgs {
    pub fn host_settings(self) -> HostSettings {
        HostSettings {
            health_timeout: Duration::from_secs(self.health_timeout),
            retries_failed: self.retry_failed,
        }
    }

    /// The pacing of the run, from the flags and from `KOPS_AGENT_MAX_UNAVAILABLE`. Fails if the variable is not a number from 0 to
    /// `MOST_SLOTS`.
    pub fn pacing(self) -> Result<Pacing, Failure> {
        let by_variable = default_of_max_unavailable()?;
        let said = self.max_unavailable.or(by_variable);
        Ok(Pacing {
            max_unavailable: said.unwrap_or(1),
            is_asked_for: said.is_some() || self.drain != DrainArg::Never,
            slot_timeout: Duration::from_secs(self.slot_timeout),
            drain: self.drain.into(),
            drain_timeout: Duration::from_secs(self.drain_timeout),
            needs_slot: false,
            ordered: None,
        })
    }
}
