//! Why the last applied state replaces the wanted state.

use anyhow::Result;
use kops_agent_host::{Applied, Host};
use kops_agent_source::bootstrap_client;
use kops_agent_spec::failure::{Kind, hashes_of_chain};

use crate::failure::kind_of;
use crate::pacing::is_not_paced;

/// Why a run applies the last applied state instead of the wanted state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instead {
    /// New machines get the configuration with this hash. This machine keeps its configuration until the machine is replaced.
    Superseded(String),
    /// The machine is already a Node that is Ready. It needs no configuration, and kops-controller gives it none.
    Registered,
    /// The wanted state was tried and rolled back.
    Refused,
    /// A failure: the wanted state is unknown or cannot be applied.
    Failed,
}

impl Instead {
    /// Classifies an error on a machine whose last applied state is `applied`.
    pub(super) fn from_error(error: &anyhow::Error, applied: &Applied) -> Instead {
        let kind = kind_of(error);
        // If the applied configuration never equaled the configuration derived from the spec, a difference between these
        // two configurations does not prove that the spec is newer.
        let is_told = kind == Kind::HashMismatch || kind == Kind::SpecDiffers && applied.is_proven;
        match hashes_of_chain(error.chain()).filter(|_| is_told) {
            Some(hashes) if hashes.expected == applied.config_hash => {
                Instead::Superseded(hashes.actual.clone())
            }
            _ if bootstrap_client::is_already_registered(error) => Instead::Registered,
            _ if kind == Kind::FailedBefore => Instead::Refused,
            _ => Instead::Failed,
        }
    }
}

/// Whether a run applies the last applied state because of `error`. Returns `false` if a change has begun and failed,
/// because the next run continues that change.
pub fn stands_in_for(error: &anyhow::Error, host: &Host) -> Result<bool> {
    // The run could not take a slot or drain the node. Applying the last applied state would need both, too.
    if is_not_paced(error) {
        return Ok(false);
    }
    let kind = kind_of(error);
    if kind.may_precede_a_change() {
        // Only the record shows whether a change has begun.
        return Ok(host.unfinished_change()?.is_none());
    }
    Ok(!kind.is_of_a_change())
}

/// The message about a superseded node. `by` is the hash of the newer configuration.
pub fn superseded(by: &str) -> String {
    format!(
        "the cluster has a new configuration ({by}) for the machine that replaces this machine. This machine \
         keeps its last applied configuration until `kops rolling-update cluster` replaces it. \
         `kops-agent converge --follow` applies the new configuration to this machine"
    )
}
