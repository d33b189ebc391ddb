//! The servers of a cluster on Hetzner Cloud, as its control plane asks for them.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_plan::identity::{Identity, Refusal, hetzner};
use kops_agent_plan::labels::ObservedNode;
use kops_agent_spec::{KopsControllerOptions, KopsControllerServerOptions};
use tokio::time::Instant;

use super::servers::HetznerServers;
use super::verify::HetznerVerifier;
use crate::calls::CloudCalls;
use crate::control_plane::{ControlPlane, ControlPlaneError, NotIdentified};
use crate::verify::{LoadBalancing, Verifier};

/// kOps' key for Hetzner Cloud in the server's configuration.
const PROVIDER: &str = "hetzner";

/// The servers of a cluster on Hetzner Cloud.
pub struct HetznerControlPlane {
    /// Where they are asked for.
    pub servers: Arc<HetznerServers>,
}

impl HetznerControlPlane {
    /// Those of the cluster that this configuration is for.
    pub(crate) fn of(
        options: &KopsControllerOptions,
        calls: CloudCalls,
    ) -> Result<HetznerControlPlane, ControlPlaneError> {
        let servers = HetznerServers::of_environment(&options.cluster_name, calls)
            .map_err(ControlPlaneError::of_list("preparing to ask Hetzner Cloud who machines are"))?;
        Ok(HetznerControlPlane { servers: Arc::new(servers) })
    }
}

impl ControlPlane for HetznerControlPlane {
    fn identify<'a>(
        &'a self,
        node: &'a ObservedNode,
        _since: Instant,
    ) -> BoxFuture<'a, Result<Identity, NotIdentified>> {
        async {
            let servers = &self.servers;
            let id = hetzner::server_id(&node.provider_id).map_err(NotIdentified::Refused)?;
            match servers.get_with_namesake(id, &node.name).await {
                Ok((Some(server), namesake)) => {
                    hetzner::identify_node(&node.name, &server, namesake.as_deref(), servers.cluster())
                        .map_err(NotIdentified::Refused)
                }
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
            let verifier = HetznerVerifier { servers: self.servers.clone() };
            Ok(is_named.then(|| Box::new(verifier) as Box<dyn Verifier>))
        }
        .boxed()
    }

    /// kOps puts port 3988 behind the API's load balancer, without the PROXY protocol (upstream:
    /// `pkg/model/hetznermodel/loadbalancer.go`).
    fn load_balancing(&self) -> LoadBalancing {
        LoadBalancing::Of(self.servers.clone())
    }
}
