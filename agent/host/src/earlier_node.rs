//! Shows whether an earlier run wrote a unit, and whether this machine was a node before the agent's first run.

use kops_agent_plan::diff::KUBELET;

use crate::error::Result;
use crate::host::Host;

/// Files that nodeup writes on every node and that no image contains (nodeup/pkg/model/secrets.go, `KubeletKubeConfig` in
/// nodeup/pkg/model/context.go).
const LEFT_BY_NODEUP: [&str; 2] = ["/srv/kubernetes/ca.crt", "/var/lib/kubelet/kubeconfig"];

impl Host {
    /// Whether an earlier run wrote the file of this unit.
    pub fn has_left_unit(&self, unit: &str) -> Result<bool> {
        Ok(self.record()?.units().contains(&unit))
    }

    /// Whether this machine was never a node: no run of the agent has claimed a resource, nodeup's files are missing, and kubelet does not
    /// run.
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
