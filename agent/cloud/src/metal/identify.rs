//! The machines of a cluster that were enrolled, as its control plane asks for them.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_plan::identity::host::{self, Host};
use kops_agent_plan::identity::{Identity, Refusal};
use kops_agent_plan::labels::ObservedNode;
use kops_agent_spec::KopsControllerServerOptions;
use tokio::time::Instant;

use crate::control_plane::{ControlPlane, ControlPlaneError, NoPodRanges, NotIdentified};
use crate::hosts::Enrolled;
use crate::verify::{MachinePrefix, Verifier};

/// The enrolled machines of a cluster.
#[derive(Debug)]
pub struct HostControlPlane {
    /// Where they are asked for.
    pub hosts: Arc<Enrolled>,
}

impl HostControlPlane {
    async fn host(&self, node: &ObservedNode, since: Instant) -> Result<Option<Host>, NotIdentified> {
        self.hosts.of_node(&node.name, since).await.map_err(NotIdentified::unavailable)
    }
}

impl ControlPlane for HostControlPlane {
    fn identify<'a>(
        &'a self,
        node: &'a ObservedNode,
        since: Instant,
    ) -> BoxFuture<'a, Result<Identity, NotIdentified>> {
        async move {
            let host = self.host(node, since).await?;
            Ok(host::identify(&node.name, host.as_ref())?)
        }
        .boxed()
    }

    fn pod_ranges<'a>(
        &'a self,
        node: &'a ObservedNode,
        since: Instant,
    ) -> BoxFuture<'a, Result<Vec<String>, NoPodRanges>> {
        async move {
            let host = self.host(node, since).await?;
            let refused = || NotIdentified::Refused(Refusal::NotEnrolled { name: node.name.clone() });
            Ok(host::pod_ranges(&host.ok_or_else(refused)?)?)
        }
        .boxed()
    }

    /// Machines of one network have single addresses of it, which no cloud gives them.
    fn machine_prefix(&self) -> MachinePrefix {
        MachinePrefix::of_bits(128)
    }

    /// None: `server.pki` has it, for this and for machines beside those of a cloud.
    fn verifier<'a>(
        &'a self,
        _server: &'a KopsControllerServerOptions,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Verifier>>, ControlPlaneError>> {
        async { Ok(None) }.boxed()
    }

    fn names_instances(&self) -> bool {
        false
    }

    fn is_labelled_by_upstream(&self) -> bool {
        false
    }
}
