//! What was here before a run: what an earlier one left, and whether another program made this machine a node before the
//! agent came to it.

use kops_agent_plan::diff::KUBELET;

use crate::error::Result;
use crate::host::Host;

/// What nodeup writes on every node, and no image brings (nodeup/pkg/model/secrets.go, `KubeletKubeConfig` in
/// nodeup/pkg/model/context.go).
const LEFT_BY_NODEUP: [&str; 2] = ["/srv/kubernetes/ca.crt", "/var/lib/kubelet/kubeconfig"];

impl Host {
    /// Whether a run has left the file of this unit here.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn has_left_unit(&self, unit: &str) -> Result<bool> {
        Ok(self.record()?.units().contains(&unit))
    }

    /// Whether nothing of a node has ever been here: no run of the agent has claimed anything, none of nodeup's files is
    /// there, and no kubelet runs.
    ///
    /// # Errors
    /// If that cannot be looked at.
    pub fn is_no_node_yet(&self) -> Result<bool> {
        let record = self.record()?;
        if !record.is_first_sight() || record.was_lost || record.unknown().next().is_some() {
            return Ok(false);
        }
        for path in LEFT_BY_NODEUP {
            if self.root.metadata(path)?.is_some() {
                return Ok(false);
            }
        }
        Ok(!self.systemd.states(&[KUBELET])?.iter().any(|state| state.running || state.restarting))
    }
}
