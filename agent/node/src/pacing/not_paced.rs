//! Reasons to leave a change to a later run.

use kops_agent_spec::failure::{Failing, Kind};
use thiserror::Error;

/// Why a change did not begin. Nothing has changed, and the node works as before.
#[derive(Debug, Error)]
pub enum NotPaced {
    #[error(
        "no slot became free within {seconds} seconds to restart {restarted} on this node, so nothing was changed: {why}. \
         Try again later, or see `kubectl -n kops-agent get leases`"
    )]
    NoSlot {
        /// The components to restart.
        restarted: String,
        seconds: u64,
        why: String,
    },
    #[error(
        "after {seconds} seconds another control plane or its API server is still not ready, so {restarted} is not \
         restarted on this control plane, and nothing was changed: {why}. Repair or replace the other control plane \
         first. --max-unavailable 0 restarts anyway, but etcd may lose its quorum"
    )]
    AnotherNotReady {
        /// The components to restart.
        restarted: String,
        seconds: u64,
        why: String,
    },
    #[error(
        "this run could not find out within {seconds} seconds whether other nodes are being restarted, so \
         {restarted} is not restarted on this node, and nothing was changed: {why}. To continue without a \
         slot, for example to repair the control plane, give --max-unavailable 0. If no server of this \
         cluster gives slots, do not request slots (KOPS_AGENT_MAX_UNAVAILABLE)"
    )]
    Unknown {
        /// The components to restart.
        restarted: String,
        seconds: u64,
        why: String,
    },
    #[error(
        "this machine has no slot of its group after {seconds} seconds, so it does not reboot and nothing was changed: {why}. No machine \
         reboots without a slot"
    )]
    NoReboot { seconds: u64, why: String },
    #[error(
        "this node could not be drained, so nothing was changed: {0}. If a run cordoned the node, this run or a later run uncordons it"
    )]
    NotDrained(String),
}

impl NotPaced {
    /// Turns the error of a missing slot into the reason why a machine does not reboot.
    pub(super) fn of_reboot(self) -> NotPaced {
        match self {
            NotPaced::NoSlot { seconds, why, .. }
            | NotPaced::AnotherNotReady { seconds, why, .. }
            | NotPaced::Unknown { seconds, why, .. } => NotPaced::NoReboot { seconds, why },
            NotPaced::NoReboot { .. } | NotPaced::NotDrained(_) => self,
        }
    }
}

impl Failing for NotPaced {
    fn kind(&self) -> Kind {
        match self {
            NotPaced::NoSlot { .. } => Kind::NoSlot,
            NotPaced::AnotherNotReady { .. } => Kind::AnotherNotReady,
            NotPaced::Unknown { .. } => Kind::SlotsUnknown,
            NotPaced::NoReboot { .. } => Kind::NoReboot,
            NotPaced::NotDrained(_) => Kind::NotDrained,
        }
    }
}
