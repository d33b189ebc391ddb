//! A change that was taken back, as the record and `status` tell of it.

use serde::{Deserialize, Serialize};

use crate::attempt::{Attempt, RENEWAL};

/// A change that was taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolledBack {
    /// When, in RFC 3339.
    pub at: String,
    /// `NodeupConfigHash` of the configuration that was tried.
    pub config_hash: String,
    /// That of the configuration of before, which is in force again.
    pub back_to: String,
    pub problem: String,
    /// What is wrong although everything is as it was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub still_wrong: Vec<String>,
    /// What tells the state that was tried from others.
    pub(crate) desired: String,
}

impl RolledBack {
    /// Whether this is what was tried.
    pub(crate) fn is_of(&self, attempt: &Attempt) -> bool {
        self.desired == attempt.desired
    }
}

impl std::fmt::Display for RolledBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.back_to.as_str() {
            // It was another program's node.
            "" => write!(f, "{}; rolled back to what was there before kops-agent", self.problem)?,
            before => write!(f, "{}; rolled back to the configuration of before ({before})", self.problem)?,
        }
        match self.still_wrong.as_slice() {
            [] => f.write_str(", with which everything is well again"),
            wrong => write!(f, ", and still: {}", wrong.join("; ")),
        }?;
        f.write_str(match self.desired.as_str() {
            RENEWAL => ". The certificates are renewed again after a day, or by a converge",
            _ => ". It is not tried again until the configuration changes or --retry-failed is given",
        })
    }
}
