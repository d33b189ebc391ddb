//! The droplets of a cluster on DigitalOcean, as its control plane asks for them.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_plan::identity::{Identity, Refusal, digital_ocean};
use kops_agent_plan::labels::ObservedNode;
use kops_agent_spec::{KopsControllerOptions, KopsControllerServerOptions};
use tokio::time::Instant;

use super::api::Droplets;
use super::verify::DigitalOceanVerifier;
use crate::calls::CloudCalls;
use crate::control_plane::{ControlPlane, ControlPlaneError, NotIdentified};
use crate::verify::{LoadBalancing, MachinePrefix, Verifier};

/// kOps' key for DigitalOcean in the server's configuration (upstream: `cmd/kops-controller/pkg/config/options.go`).
const PROVIDER: &str = "do";
/// A droplet has sixteen addresses of the /64 of its data centre (DigitalOcean, "IPv6 on Droplets").
const MACHINE_PREFIX: MachinePrefix = MachinePrefix::of_bits(124);

/// The droplets of a cluster on DigitalOcean.
pub struct DigitalOceanControlPlane {
    /// Where they are asked for.
    pub droplets: Arc<Droplets>,
}

impl DigitalOceanControlPlane {
    /// Those of the cluster that this configuration is for.
    pub(super) fn of(
        options: &KopsControllerOptions,
        calls: CloudCalls,
    ) -> Result<DigitalOceanControlPlane, ControlPlaneError> {
        let droplets = Droplets::of_environment(&options.cluster_name, calls)
            .map_err(ControlPlaneError::of_list("preparing to ask DigitalOcean which droplets there are"))?;
        Ok(DigitalOceanControlPlane { droplets: Arc::new(droplets) })
    }
}

impl ControlPlane for DigitalOceanControlPlane {
    fn identify<'a>(
        &'a self,
        node: &'a ObservedNode,
        _since: Instant,
    ) -> BoxFuture<'a, Result<Identity, NotIdentified>> {
        async {
            let droplets = &self.droplets;
            let id = digital_ocean::droplet_id(&node.provider_id).map_err(NotIdentified::Refused)?;
            match droplets.get_with_namesake(id, &node.name).await {
                Ok((Some(droplet), namesake)) => digital_ocean::identify_node(
                    &node.name,
                    &droplet,
                    namesake.as_deref(),
                    droplets.cluster(),
                )
                .map_err(NotIdentified::Refused),
                Ok((None, _)) => {
                    Err(NotIdentified::Refused(Refusal::NoSuchInstance { instance: id.to_string() }))
                }
                Err(error) => Err(NotIdentified::Unavailable(error.to_string())),
            }
        }
        .boxed()
    }

    fn verifier<'a>(
        &'a self,
        server: &'a KopsControllerServerOptions,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Verifier>>, ControlPlaneError>> {
        async {
            let is_named = server.provider.others.contains_key(PROVIDER);
            let verifier = DigitalOceanVerifier { droplets: self.droplets.clone() };
            Ok(is_named.then(|| Box::new(verifier) as Box<dyn Verifier>))
        }
        .boxed()
    }

    fn machine_prefix(&self) -> MachinePrefix {
        MACHINE_PREFIX
    }

    /// kOps puts port 3988 behind the API's load balancer, where there is one (upstream:
    /// `pkg/model/domodel/api_loadbalancer.go`).
    fn load_balancing(&self) -> LoadBalancing {
        LoadBalancing::Of(self.droplets.clone())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::IpAddr;

    use kops_agent_tests::digital_ocean::{DigitalOcean, Droplet, Mood, TOKEN};

    use super::*;

    const CLUSTER: &str = "c.example.com";

    async fn identified(
        control_plane: &DigitalOceanControlPlane,
        name: &str,
        id: u64,
    ) -> Result<Identity, NotIdentified> {
        let provider_id = format!("digitalocean://{id}");
        let node = ObservedNode { name: name.into(), provider_id, ..ObservedNode::default() };
        control_plane.identify(&node, Instant::now()).await
    }

    #[tokio::test]
    async fn a_node_is_the_droplet_with_its_address_and_no_other() {
        kops_agent_net::tls::install_provider();
        let api = DigitalOcean::start().unwrap();
        for last in [1, 2] {
            let address = IpAddr::from([10, 10, 0, last]);
            api.put(u64::from(last), Droplet::of_group(CLUSTER, "nodes", "nodes", address));
        }
        let droplets = Droplets::at(&api.url(), TOKEN, CLUSTER, CloudCalls::default()).unwrap();
        let control_plane = DigitalOceanControlPlane { droplets: Arc::new(droplets) };
        assert_eq!(identified(&control_plane, "10.10.0.1", 1).await.unwrap().instance_group, "nodes");
        for (name, id, reason, is_definite) in [
            ("10.10.0.1", 2, "InstanceOfOtherNode", true),
            ("10.10.0.9", 2, "InstanceOfOtherNode", false),
            ("10.10.0.3", 3, "InstanceNotFound", false),
        ] {
            match identified(&control_plane, name, id).await {
                Err(NotIdentified::Refused(refusal)) => {
                    assert_eq!((refusal.reason(), refusal.is_definite()), (reason, is_definite), "{name}");
                }
                other => panic!("{other:?}"),
            }
        }
        let droplets = Droplets::at(&api.url(), TOKEN, CLUSTER, CloudCalls::default()).unwrap();
        let control_plane = DigitalOceanControlPlane { droplets: Arc::new(droplets) };
        api.set_mood(Mood::Throttling);
        let asked = identified(&control_plane, "10.10.0.1", 1).await;
        assert!(matches!(asked, Err(NotIdentified::Unavailable(_))), "{asked:?}");
    }
}
