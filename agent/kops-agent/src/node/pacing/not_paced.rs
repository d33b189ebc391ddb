//! Why a change waits for another run.

use thiserror::Error;

/// Why a change was not begun. Nothing has been changed then, and the node works as it did.
#[derive(Debug, Error)]
pub enum NotPaced {
    #[error(
        "no slot became free within {seconds} seconds to restart {restarted} on this node, so nothing was changed: {why}; \
         try again later, or see `kubectl -n kops-agent get leases`"
    )]
    NoSlot {
        /// What was to be restarted.
        restarted: String,
        /// For how long it was waited.
        seconds: u64,
        why: String,
    },
    /// Another control plane is not well.
    #[error(
        "after {seconds} seconds another control plane is still not Ready, so {restarted} is not restarted on this one and nothing was \
         changed: {why}; put that one right first, or replace it. --max-unavailable 0 restarts this one all the same, which may end \
         etcd's quorum"
    )]
    AnotherNotReady {
        /// What was to be restarted.
        restarted: String,
        /// For how long it was waited.
        seconds: u64,
        why: String,
    },
    /// Whether there is one could not be known.
    #[error(
        "it could not be known within {seconds} seconds whether other nodes are being restarted, so {restarted} is not restarted on \
         this node and nothing was changed: {why}; to go on without a slot, as where the control plane itself is to be put right, \
         give --max-unavailable 0; where no server of this cluster gives slots, do not ask for one (KOPS_AGENT_MAX_UNAVAILABLE)"
    )]
    Unknown {
        /// What was to be restarted.
        restarted: String,
        /// For how long it was tried.
        seconds: u64,
        why: String,
    },
    /// Pods did not leave.
    #[error(
        "this node could not be drained, so nothing was changed, and it is as schedulable as before: {0}"
    )]
    NotDrained(String),
}
