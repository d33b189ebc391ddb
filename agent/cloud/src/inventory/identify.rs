//! The machines of a cluster, as its control plane asks for them.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_plan::identity::machine::identify_node;
use kops_agent_plan::identity::{Identity, Refusal};
use kops_agent_plan::labels::ObservedNode;
use kops_agent_spec::{KopsControllerOptions, KopsControllerServerOptions};
use tokio::time::Instant;

use super::{Inventory, Listed, ListedVerifier, ProvenBy};
use crate::calls::CloudCalls;
use crate::control_plane::{ControlPlane, ControlPlaneError, NotIdentified};
use crate::verify::{LoadBalancing, MachinePrefix, Verifier};

/// The machines of a cluster.
pub struct ListedControlPlane<M> {
    /// Where they are asked for.
    pub machines: Arc<Inventory<M>>,
}

impl<M: Listed> ListedControlPlane<M> {
    /// Those of the cluster that this configuration is for.
    ///
    /// # Errors
    /// If the environment is wrong, or a client cannot be set up.
    pub(crate) async fn of(
        options: &KopsControllerOptions,
        calls: CloudCalls,
    ) -> Result<Self, ControlPlaneError> {
        let machines = Inventory::of_environment(&options.cluster_name, calls)
            .await
            .map_err(ControlPlaneError::of_list("preparing to ask the cloud for the cluster's machines"))?;
        Ok(ListedControlPlane { machines: Arc::new(machines) })
    }
}

impl<M: Listed> ControlPlane for ListedControlPlane<M> {
    fn identify<'a>(
        &'a self,
        node: &'a ObservedNode,
        // The list has had this Node's machine since it bootstrapped, or is asked again within seconds.
        _since: Instant,
    ) -> BoxFuture<'a, Result<Identity, NotIdentified>> {
        async {
            let id = M::PROVIDER_IDS.id(&node.provider_id)?;
            let asked = self.machines.get_with_namesake(id, &node.name).await;
            let (machine, namesake) = asked.map_err(NotIdentified::unavailable)?;
            // It may say where the machine is, too, and be wrong about that.
            let named = machine.filter(|machine| machine.is_named_by(&node.provider_id));
            let machine = named.ok_or_else(|| Refusal::NoSuchInstance { instance: id.to_string() })?;
            Ok(identify_node(&node.name, &*machine, namesake.as_deref(), self.machines.cluster())?)
        }
        .boxed()
    }

    fn verifier<'a>(
        &'a self,
        server: &'a KopsControllerServerOptions,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Verifier>>, ControlPlaneError>> {
        async {
            let is_named = server.provider.others.contains_key(M::BOOTSTRAP.provider);
            let verifier = ListedVerifier { machines: self.machines.clone() };
            Ok(is_named.then(|| Box::new(verifier) as Box<dyn Verifier>))
        }
        .boxed()
    }

    fn machine_prefix(&self) -> MachinePrefix {
        M::BOOTSTRAP.machine_prefix
    }

    /// kOps puts port 3988 behind the API's load balancer, where there is one, without the PROXY protocol (upstream:
    /// `pkg/model/domodel/api_loadbalancer.go`, `pkg/model/hetznermodel/loadbalancer.go`,
    /// `pkg/model/scalewaymodel/api_loadbalancer.go`). Where there is none, it is the same with a machine that connects from an
    /// address which the cloud does not list. A machine that its address is to prove comes by none.
    fn load_balancing(&self) -> LoadBalancing {
        match M::PROVEN_BY {
            ProvenBy::CallBack => LoadBalancing::Of(self.machines.clone()),
            ProvenBy::Address => LoadBalancing::None,
        }
    }
}
