//! Reasons to leave a change to a later run.

use thiserror::Error;

/// Why a change did not begin. Nothing has changed, and the node works as before.
#[derive(Debug, Error)]
pub enum NotPaced {
    #[error(
        "no slot became free within {seconds} seconds to restart {restarted} on this node, so nothing was changed: {why}; \
         try again later, or see `kubectl -n kops-agent get leases`"
    )]
    NoSlot {
        /// The components to restart.
        restarted: String,
        /// How long the run waited.
        seconds: u64,
        why: String,
    },
    /// Another control plane is not Ready.
    #[error(
        "after {seconds} seconds another control plane is still not Ready, so {restarted} is not restarted on this one and nothing was \
         changed: {why}; put that one right first, or replace it. --max-unavailable 0 restarts this one all the same, which may end \
         etcd's quorum"
    )]
    AnotherNotReady {
        /// The components to restart.
        restarted: String,
        /// How long the run waited.
        seconds: u64,
        why: String,
    },
    /// The run could not find out whether a slot is free.
    #[error(
        "it could not be known within {seconds} seconds whether other nodes are being restarted, so {restarted} is not restarted on \
         this node and nothing was changed: {why}; to go on without a slot, as where the control plane itself is to be put right, \
         give --max-unavailable 0; where no server of this cluster gives slots, do not ask for one (KOPS_AGENT_MAX_UNAVAILABLE)"
    )]
    Unknown {
        /// The components to restart.
        restarted: String,
        /// How long the run tried.
        seconds: u64,
        why: String,
    },
    /// The Node could not be cordoned, or pods did not leave.
    #[error(
        "this node could not be drained, so nothing was changed, and it is as schedulable as before: {0}"
    )]
    NotDrained(String),
}
