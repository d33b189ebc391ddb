//! Why what was last applied takes the place of what is wanted.

use anyhow::Result;
use kops_agent_bootstrap_client as bootstrap_client;
use kops_agent_host::{Applied, Error as HostError, Host};
use kops_agent_spec::HashMismatch;

use crate::node::pacing::is_not_paced;
use crate::source::SpecDiffers;

/// Why what was last applied is applied again, and not what is wanted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instead {
    /// Machines that are made from now on get the configuration of this hash; this one stays as it is until it is
    /// replaced.
    Superseded(String),
    /// kops-controller gives a Node that is ready nothing, and needs to give it nothing.
    Registered,
    /// What is wanted was tried and rolled back.
    Refused,
    /// What is wanted is not known, or cannot be applied, which is a failure.
    Failed,
}

impl Instead {
    /// What an error means to a machine that has converged to this.
    pub(super) fn of(error: &anyhow::Error, applied: &Applied) -> Instead {
        let of_file = || {
            let found = error.chain().find_map(|cause| cause.downcast_ref::<HashMismatch>())?;
            Some((&found.expected, &found.actual))
        };
        let of_spec = || {
            let found = error.chain().find_map(|cause| cause.downcast_ref::<SpecDiffers>())?;
            // Otherwise kOps may have known something when it wrote the file that the spec never said.
            applied.is_proven.then_some((&found.expected, &found.actual))
        };
        match of_file().or_else(of_spec) {
            Some((expected, actual)) if *expected == applied.config_hash => {
                Instead::Superseded(actual.clone())
            }
            _ if bootstrap_client::is_already_registered(error) => Instead::Registered,
            _ if is_refusal(error) => Instead::Refused,
            _ => Instead::Failed,
        }
    }
}

fn is_refusal(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(HostError::FailedBefore(_))))
}

/// Whether what was last applied is applied in the place of what an error keeps from being known or applied. A change that
/// has begun and failed is none of that: the next run goes on with it.
///
/// # Errors
/// What is recorded of a change cannot be read.
pub fn stands_in_for(error: &anyhow::Error, host: &Host) -> Result<bool> {
    // That would take a slot, too.
    if is_not_paced(error) {
        return Ok(false);
    }
    let Some(cause) = error.chain().find_map(|cause| cause.downcast_ref::<HostError>()) else {
        return Ok(true);
    };
    Ok(match cause {
        HostError::FailedBefore(_) => true,
        // Before the first write; that it was before that is seen from what is recorded.
        HostError::Download(_)
        | HostError::Certificate(_)
        | HostError::MissingSecret { .. }
        | HostError::Invalid { .. }
        | HostError::Path { .. } => host.unfinished_change()?.is_none(),
        _ => false,
    })
}

/// What being superseded means to people. `by` is the hash of the other configuration.
pub fn superseded(by: &str) -> String {
    format!(
        "the cluster has another configuration by now ({by}), for the machines that take the place of this one; this one \
         stays as it was last applied until `kops rolling-update cluster` replaces it"
    )
}
