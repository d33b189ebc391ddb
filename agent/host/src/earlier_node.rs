//! Shows whether an earlier run wrote a unit, and whether this machine was a node before the agent's first run.

use kops_agent_plan::diff::KUBELET;
use kops_agent_plan::resource::{Kind, ResourceId};

use crate::error::Result;
use crate::host::Host;
use crate::places::path_of;

/// Files that nodeup writes on every node and that no image contains (nodeup/pkg/model/secrets.go, `KubeletKubeConfig` in
/// nodeup/pkg/model/context.go).
const LEFT_BY_NODEUP: [&str; 2] = ["/srv/kubernetes/ca.crt", "/var/lib/kubelet/kubeconfig"];

impl Host {
    /// Whether an earlier run wrote the file of this unit.
    pub fn has_left_unit(&self, unit: &str) -> Result<bool> {
        Ok(self.record()?.units().contains(&unit))
    }

    /// The texts of these units. Leaves out each unit that no run wrote, or that another program has changed since.
    pub fn units_as_left(&self, names: &[&'static str]) -> Result<Vec<(&'static str, String)>> {
        let record = self.record()?;
        let mut units = Vec::new();
        for name in names {
            let id = ResourceId::new(Kind::Unit, *name);
            if !record.is_as_left(&self.root, &id)? {
                continue;
            }
            if let Some(text) = self.root.read(&path_of(&self.root, &id))? {
                units.push((*name, String::from_utf8_lossy(&text).into_owned()));
            }
        }
        Ok(units)
    }

    /// Whether this machine was never a node: no run of the agent has recorded a resource, nodeup's files are missing, and kubelet does not
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
