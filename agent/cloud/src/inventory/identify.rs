//! Identifies and verifies the machines of a cluster for its control plane.

use std::sync::Arc;

use kops_agent_cluster::identity::machine::identify_node;
use kops_agent_cluster::identity::{Identity, Refusal};
use kops_agent_cluster::labels::ObservedNode;
use kops_agent_spec::{KopsControllerOptions, KopsControllerServerOptions};
use tokio::time::Instant;

use super::{Inventory, Listed, ListedVerifier, ProvenBy};
use crate::calls::CloudCalls;
use crate::control_plane::{ControlPlane, ControlPlaneError, NotIdentified};
use crate::verify::{LoadBalancing, MachinePrefix, Verifier};

pub struct ListedControlPlane<M> {
    pub machines: Arc<Inventory<M>>,
}

impl<M: Listed> ListedControlPlane<M> {
    pub(crate) async fn new(
        options: &KopsControllerOptions,
        calls: CloudCalls,
    ) -> Result<Self, ControlPlaneError> {
        let machines = Inventory::of_environment(&options.cluster_name, calls)
            .await
            .map_err(ControlPlaneError::of_list("preparing to ask the cloud for the cluster's machines"))?;
        Ok(ListedControlPlane { machines: Arc::new(machines) })
    }
}

#[async_trait::async_trait]
impl<M: Listed> ControlPlane for ListedControlPlane<M> {
    async fn identify(
        &self,
        node: &ObservedNode,
        // `_since` is not needed: the list has contained a Node's machine since the machine's bootstrap. A list that lacks the machine is
        // replaced within seconds.
        _since: Instant,
    ) -> Result<Identity, NotIdentified> {
        let id = M::PROVIDER_IDS.id(&node.provider_id)?;
        let asked = self.machines.get_with_namesake(id, &node.name).await;
        let (machine, namesake) = asked.map_err(NotIdentified::unavailable)?;
        // The machine was found by its id alone. A providerID may also contain a location, and the location may be wrong.
        let named = machine.filter(|machine| machine.is_named_by(&node.provider_id));
        let machine = named.ok_or_else(|| Refusal::NoSuchInstance { instance: id.to_string() })?;
        Ok(identify_node(&node.name, &*machine, namesake.as_deref(), self.machines.cluster())?)
    }

    async fn verifier(
        &self,
        server: &KopsControllerServerOptions,
    ) -> Result<Option<Box<dyn Verifier>>, ControlPlaneError> {
        let is_named = server.provider.others.contains_key(M::BOOTSTRAP.provider);
        let verifier = ListedVerifier { machines: self.machines.clone() };
        Ok(is_named.then(|| Box::new(verifier) as Box<dyn Verifier>))
    }

    fn machine_prefix(&self) -> MachinePrefix {
        M::BOOTSTRAP.machine_prefix
    }

    /// If the Kubernetes API has a load balancer, kOps puts port 3988 behind this load balancer, without the PROXY protocol (upstream:
    /// `pkg/model/domodel/api_loadbalancer.go`, `pkg/model/hetznermodel/loadbalancer.go`, `pkg/model/scalewaymodel/api_loadbalancer.go`).
    /// A source address that belongs to no listed machine counts as the address of a load balancer, even in a cluster without one. If the
    /// source address is the proof of identity, all machines connect directly, so no address counts as a load balancer's.
    fn load_balancing(&self) -> LoadBalancing {
        match M::PROVEN_BY {
            ProvenBy::CallBack => LoadBalancing::Of(self.machines.clone()),
            ProvenBy::Address => LoadBalancing::None,
        }
    }
}
