//! Identifies and verifies a cluster's GCE instances for its control plane.

use kops_agent_cluster::identity::gce::{self, GceCluster, ManagedInstance, is_project, is_resource_name};
use kops_agent_cluster::identity::{Identity, Refusal};
use kops_agent_cluster::labels::ObservedNode;
use kops_agent_spec::{KopsControllerOptions, KopsControllerServerOptions};
use tokio::time::Instant;

use super::compute::Compute;
use super::facts;
use super::managed_groups::{Managed, ManagedGroups};
use super::verify::GceVerifier;
use crate::calls::CloudCalls;
use crate::control_plane::{ControlPlane, ControlPlaneError, NoPodRanges, NotIdentified};
use crate::verify::{MachinePrefix, Verifier};

/// The IPv6 range of a network interface, within the /64 of its subnet (Google Cloud, "VPC: Subnets", "IPv6 subnet ranges").
const MACHINE_PREFIX: MachinePrefix = MachinePrefix::of_bits(96);

/// Access to the instances of a cluster on GCE.
pub struct GceControlPlane {
    pub groups: ManagedGroups,
}

impl GceControlPlane {
    pub(crate) async fn new(
        options: &KopsControllerOptions,
        calls: CloudCalls,
    ) -> Result<GceControlPlane, ControlPlaneError> {
        let cluster = cluster(options).await?;
        let compute = Compute::of_environment(&cluster.project, calls).map_err(ControlPlaneError::client)?;
        Ok(GceControlPlane { groups: ManagedGroups::new(compute, cluster) })
    }
}

/// The cluster's project and region, from the configuration or else from this machine.
async fn cluster(options: &KopsControllerOptions) -> Result<GceCluster, ControlPlaneError> {
    let verifier = options.server.as_ref().and_then(|server| server.provider.gce.as_ref());
    let written = verifier.map(|gce| (gce.project_id.clone(), gce.region.clone())).unwrap_or_default();
    let (project, region) = match written {
        (project, region) if !project.is_empty() && !region.is_empty() => (project, region),
        (project, region) => {
            let place = facts::place()
                .await
                .map_err(ControlPlaneError::failed("finding the GCE project of this machine"))?;
            let own_region = place.zone.rsplit_once('-').map(|(region, _)| region.to_owned());
            let or = |written: String, own: String| if written.is_empty() { own } else { written };
            (or(project, place.project), or(region, own_region.unwrap_or_default()))
        }
    };
    if !is_project(&project) || !is_resource_name(&region) {
        return Err(ControlPlaneError::Configuration(format!(
            "server.provider.gce has an invalid project or region (project {project:?}, region {region:?}); \
             set the ID of a Google project and the name of a region. Remove both if the cluster is in the \
             project and region of this machine"
        )));
    }
    Ok(GceCluster { name: options.cluster_name.clone(), project, region })
}

impl GceControlPlane {
    /// Finds the instance of a Node in the list of a managed instance group. Also returns the Node's identity.
    async fn find_instance(
        &self,
        node: &ObservedNode,
        since: Instant,
    ) -> Result<(ManagedInstance, Identity), NotIdentified> {
        let cluster = self.groups.cluster();
        let path = gce::instance_path(&node.provider_id, cluster)?;
        let found = self.groups.find(&path, since).await.map_err(NotIdentified::unavailable)?;
        let Some(Managed { instance, template }) = found else {
            // No group lists the instance, so the Node is not identified. This request only finds out for the error message whether the
            // instance exists.
            let unlisted = self.groups.instance(&path).await.map_err(NotIdentified::unavailable)?;
            return Err(match unlisted {
                Some(instance) => gce::unlisted(&instance, cluster),
                None => Refusal::NoSuchInstance { instance: path.name },
            }
            .into());
        };
        let identity = gce::identify(&node.name, &instance, &template, cluster)?;
        Ok((instance, identity))
    }
}

#[async_trait::async_trait]
impl ControlPlane for GceControlPlane {
    async fn identify(&self, node: &ObservedNode, since: Instant) -> Result<Identity, NotIdentified> {
        Ok(self.find_instance(node, since).await?.1)
    }

    /// Takes the ranges from one cached list of the zone's instances. Upstream requests each instance.
    async fn pod_ranges(&self, node: &ObservedNode, since: Instant) -> Result<Vec<String>, NoPodRanges> {
        let (instance, _) = self.find_instance(node, since).await?;
        let ranges = self.groups.ranges(&instance).await.map_err(NotIdentified::unavailable)?;
        let name = instance.path.name.clone();
        let ranges = ranges
            .ok_or_else(|| NotIdentified::Refused(Refusal::NoSuchInstance { instance: name.clone() }))?;
        Ok(gce::pod_ranges(&name, &ranges)?)
    }

    async fn verifier(
        &self,
        server: &KopsControllerServerOptions,
    ) -> Result<Option<Box<dyn Verifier>>, ControlPlaneError> {
        Ok(server.provider.gce.as_ref().map(|gce| {
            Box::new(GceVerifier::new(self.groups.clone(), gce.max_time_skew)) as Box<dyn Verifier>
        }))
    }

    fn machine_prefix(&self) -> MachinePrefix {
        MACHINE_PREFIX
    }
}
