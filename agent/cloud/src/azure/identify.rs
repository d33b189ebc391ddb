//! Identifies and verifies a cluster's Azure machines for its control plane.

use std::sync::Arc;

use kops_agent_cluster::identity::azure::AzureCluster;
use kops_agent_cluster::identity::{Identity, Refusal};
use kops_agent_cluster::labels::ObservedNode;
use kops_agent_spec::{KopsControllerOptions, KopsControllerServerOptions};
use tokio::time::Instant;

use super::arm::Arm;
use super::attestation::Attestation;
use super::facts;
use super::scale_sets::ScaleSets;
use super::verify::AzureVerifier;
use crate::calls::CloudCalls;
use crate::control_plane::{ControlPlane, ControlPlaneError, NotIdentified};
use crate::verify::{LoadBalancing, Verifier};

/// The environment variable that permits tokens without a signed document, for machines of kOps 1.36 and older.
const UNSIGNED_VARIABLE: &str = "KOPS_AGENT_AZURE_UNSIGNED_TOKENS";
/// Azure's field below `server.provider` in kops-controller's configuration (upstream: `cmd/kops-controller/pkg/config/options.go`).
const PROVIDER: &str = "azure";

pub struct AzureControlPlane {
    pub scale_sets: ScaleSets,
}

impl AzureControlPlane {
    /// Uses the subscription and the resource group of this machine (upstream: `newVerifierClient` in
    /// `upup/pkg/fi/cloudup/azure/verifier.go`).
    pub(crate) async fn new(
        options: &KopsControllerOptions,
        calls: CloudCalls,
    ) -> Result<AzureControlPlane, ControlPlaneError> {
        let place = facts::place()
            .await
            .map_err(ControlPlaneError::failed("finding the Azure resource group of this machine"))?;
        let facts::Place { subscription, resource_group } = place;
        let arm = Arm::of_environment(&subscription, &resource_group, calls).map_err(
            ControlPlaneError::of_list("preparing to ask Azure Resource Manager for the cluster's machines"),
        )?;
        let cluster = AzureCluster { name: options.cluster_name.clone(), subscription, resource_group };
        Ok(AzureControlPlane { scale_sets: ScaleSets::new(arm, cluster) })
    }
}

#[async_trait::async_trait]
impl ControlPlane for AzureControlPlane {
    async fn identify(&self, node: &ObservedNode, since: Instant) -> Result<Identity, NotIdentified> {
        let cluster = self.scale_sets.cluster();
        let path = cluster.machine(&node.provider_id)?;
        let found = self.scale_sets.find(&path, since).await.map_err(NotIdentified::unavailable)?;
        let machine = found.ok_or_else(|| Refusal::NoSuchInstance { instance: path.to_string() })?;
        let has_namesake = self.scale_sets.has_namesake(&node.name, &path).await;
        Ok(machine.identify_node(&node.name, has_namesake, cluster)?)
    }

    async fn verifier(
        &self,
        server: &KopsControllerServerOptions,
    ) -> Result<Option<Box<dyn Verifier>>, ControlPlaneError> {
        if !server.provider.others.contains_key(PROVIDER) {
            return Ok(None);
        }
        let attestation = Attestation::of_this_host().map_err(ControlPlaneError::client)?;
        let takes_unsigned = match std::env::var(UNSIGNED_VARIABLE).as_deref() {
            Ok("true") => true,
            Ok("" | "false") | Err(_) => false,
            Ok(other) => {
                let problem = format!("{UNSIGNED_VARIABLE} is {other:?}: set it to true or false");
                return Err(ControlPlaneError::Configuration(problem));
            }
        };
        let verifier =
            AzureVerifier::new(self.scale_sets.clone(), attestation).taking_unsigned(takes_unsigned);
        Ok(Some(Box::new(verifier)))
    }

    /// Azure's load balancers preserve the source address, but this address does not always identify a machine: machines
    /// reach a public load balancer through a NAT gateway, and all machines share the gateway's address (upstream:
    /// `pkg/model/azuremodel/api_loadbalancer.go`, `natgateway.go` in `upup/pkg/fi/cloudup/azuretasks`).
    fn load_balancing(&self) -> LoadBalancing {
        LoadBalancing::Of(Arc::new(self.scale_sets.clone()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_tests::azure::{
        Azure, Machine, Mood, RESOURCE_GROUP, SUBSCRIPTION, resource_id, resource_id_alone,
    };

    use super::*;

    const CLUSTER: &str = "c.example.com";
    const NODES: &str = "nodes.c.example.com";

    struct World {
        azure: Azure,
        control_plane: AzureControlPlane,
    }

    impl World {
        fn new() -> World {
            kops_agent_net::tls::install_provider();
            let azure = Azure::start().unwrap();
            for number in 0..2 {
                let name = format!("nodes{number:06}");
                azure.put(NODES, number, Machine::of_group(CLUSTER, "nodes", &name, [10, 0, 0, 4].into()));
            }
            let arm = Arm::for_tests(&azure.url(), SUBSCRIPTION, RESOURCE_GROUP, CloudCalls::default());
            let cluster = AzureCluster {
                name: CLUSTER.into(),
                subscription: SUBSCRIPTION.into(),
                resource_group: RESOURCE_GROUP.into(),
            };
            let control_plane = AzureControlPlane { scale_sets: ScaleSets::new(arm, cluster) };
            World { azure, control_plane }
        }

        async fn identify(&self, name: &str, number: u32) -> Result<Identity, NotIdentified> {
            let provider_id = format!("azure://{}", resource_id(NODES, number));
            let node = ObservedNode { name: name.into(), provider_id, ..ObservedNode::default() };
            self.control_plane.identify(&node, Instant::now()).await
        }

        /// The reason of the refusal, and whether the refusal is definite.
        async fn refused(&self, name: &str, number: u32) -> (&'static str, bool) {
            match self.identify(name, number).await {
                Err(NotIdentified::Refused(refusal)) => (refusal.reason(), refusal.is_definite()),
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_node_is_identified_only_as_the_machine_of_its_name() {
        let world = World::new();
        let identity = world.identify("nodes000001", 1).await.unwrap();
        assert_eq!(identity.instance_group, "nodes");
        assert_eq!(identity.noted_labels["node-role.kubernetes.io/node"], "");
        assert_eq!(world.refused("nodes000000", 1).await, ("InstanceOfOtherNode", true));
        assert_eq!(world.refused("renamed", 1).await, ("InstanceOfOtherNode", false));
        assert_eq!(world.refused("nodes000002", 2).await, ("InstanceNotFound", false));
        let elsewhere = ObservedNode { provider_id: "gce://p/z/n".into(), ..ObservedNode::default() };
        let refused = world.control_plane.identify(&elsewhere, Instant::now()).await;
        assert!(matches!(refused, Err(NotIdentified::Refused(Refusal::ProviderId { .. }))), "{refused:?}");
    }

    #[tokio::test]
    async fn a_node_may_be_a_machine_outside_scale_sets() {
        let world = World::new();
        let machine = Machine::of_group(CLUSTER, "general", "General-x7k2", [10, 0, 0, 5].into());
        world.azure.put_alone("General-x7k2", machine);
        let node = |name: &str| ObservedNode {
            name: name.to_ascii_lowercase(),
            provider_id: format!("azure://{}", resource_id_alone(name)),
            ..ObservedNode::default()
        };
        let identify = async |name: &str| world.control_plane.identify(&node(name), Instant::now()).await;
        assert_eq!(identify("General-x7k2").await.unwrap().instance_group, "general");
        let refused = identify("general-other").await;
        assert!(
            matches!(refused, Err(NotIdentified::Refused(Refusal::NoSuchInstance { .. }))),
            "{refused:?}"
        );
        assert!(
            world.azure.calls().iter().all(|call| !call.contains("ScaleSets")),
            "{:?}",
            world.azure.calls()
        );
    }

    #[tokio::test]
    async fn failed_requests_to_azure_reject_no_node() {
        for mood in [Mood::Forbidding, Mood::Down, Mood::Babbling, Mood::WithoutGroup] {
            let world = World::new();
            world.azure.set_mood(mood);
            let refused = world.identify("nodes000001", 1).await;
            assert!(matches!(refused, Err(NotIdentified::Unavailable(_))), "{mood:?}: {refused:?}");
        }
    }

    #[tokio::test]
    async fn a_verifier_exists_only_if_the_configuration_names_the_cloud() {
        let world = World::new();
        let without = KopsControllerServerOptions::default();
        assert!(world.control_plane.verifier(&without).await.unwrap().is_none());
    }
}
