//! Identifies the enrolled machines of a cluster for its control plane.

use std::sync::Arc;

use kops_agent_cluster::identity::host::{self, Host};
use kops_agent_cluster::identity::{Identity, Refusal};
use kops_agent_cluster::labels::ObservedNode;
use kops_agent_spec::KopsControllerServerOptions;
use tokio::time::Instant;

use crate::control_plane::{ControlPlane, ControlPlaneError, NoPodRanges, NotIdentified};
use crate::hosts::Enrolled;
use crate::verify::{MachinePrefix, Verifier};

/// Access to the enrolled machines of a cluster.
#[derive(Debug)]
pub struct HostControlPlane {
    pub hosts: Arc<Enrolled>,
}

impl HostControlPlane {
    async fn host(&self, node: &ObservedNode, since: Instant) -> Result<Option<Host>, NotIdentified> {
        self.hosts.of_node(&node.name, since).await.map_err(NotIdentified::unavailable)
    }
}

#[async_trait::async_trait]
impl ControlPlane for HostControlPlane {
    async fn identify(&self, node: &ObservedNode, since: Instant) -> Result<Identity, NotIdentified> {
        let host = self.host(node, since).await?;
        Ok(host::identify(&node.name, host.as_ref())?)
    }

    async fn pod_ranges(&self, node: &ObservedNode, since: Instant) -> Result<Vec<String>, NoPodRanges> {
        let host = self.host(node, since).await?;
        let refused = || NotIdentified::Refused(Refusal::NotEnrolled { name: node.name.clone() });
        Ok(host::pod_ranges(&host.ok_or_else(refused)?)?)
    }

    /// A machine outside any cloud has single addresses, and no range of its own.
    fn machine_prefix(&self) -> MachinePrefix {
        MachinePrefix::of_bits(128)
    }

    /// Always `None`, because the server itself creates the verifier of enrolled machines from `server.pki`. It does so for every cloud.
    async fn verifier(
        &self,
        _server: &KopsControllerServerOptions,
    ) -> Result<Option<Box<dyn Verifier>>, ControlPlaneError> {
        Ok(None)
    }

    fn names_instances(&self) -> bool {
        false
    }

    fn is_labelled_by_upstream(&self) -> bool {
        false
    }
}
