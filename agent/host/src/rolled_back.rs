//! A rolled-back change, as the record and `status` report it.

use serde::{Deserialize, Serialize};

use crate::attempt::{Attempt, RENEWAL};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolledBack {
    /// The time of the rollback, in RFC 3339.
    pub at: String,
    /// The `NodeupConfigHash` of the rejected configuration.
    pub config_hash: String,
    /// The `NodeupConfigHash` of the earlier configuration, to which the node was rolled back. Empty if the agent had applied
    /// no configuration before, because another program had set up the node.
    pub back_to: String,
    pub problem: String,
    /// The problems that remain after the rollback.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub still_wrong: Vec<String>,
    /// The digest of the rejected state.
    pub(crate) desired: String,
}

impl RolledBack {
    /// Whether `attempt` is the rejected state.
    pub(crate) fn is_of(&self, attempt: &Attempt) -> bool {
        self.desired == attempt.desired
    }
}

impl std::fmt::Display for RolledBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.back_to.as_str() {
            // Without an earlier configuration, another program had set up the node.
            "" => write!(f, "{}; rolled back to what was there before kops-agent", self.problem)?,
            before => write!(f, "{}; rolled back to the previous configuration ({before})", self.problem)?,
        }
        match self.still_wrong.as_slice() {
            [] => f.write_str(", and everything is healthy again"),
            wrong => write!(f, ", but these problems remain: {}", wrong.join("; ")),
        }?;
        f.write_str(match self.desired.as_str() {
            RENEWAL => ". The certificates are renewed again after a day, or by `kops-agent converge`",
            _ => {
                ". This change is not tried again until the configuration changes or you give --retry-failed"
            }
        })
    }
}
