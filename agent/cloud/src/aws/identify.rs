//! Identifies and verifies a cluster's EC2 instances for its control plane.

use std::sync::Arc;

use kops_agent_cluster::identity::aws::{self, AwsCluster, Ec2Instance};
use kops_agent_cluster::identity::{Identity, Refusal};
use kops_agent_cluster::labels::ObservedNode;
use kops_agent_net::retry::Retries;
use kops_agent_spec::{KopsControllerOptions, KopsControllerServerOptions};
use tokio::time::Instant;

use super::ec2::Ec2;
use super::facts;
use super::instances::Instances;
use super::sts::Sts;
use super::verify::AwsVerifier;
use crate::calls::CloudCalls;
use crate::control_plane::{ControlPlane, ControlPlaneError, NoPodRanges, NotIdentified};
use crate::metadata::MetadataError;
use crate::verify::{MachinePrefix, Verifier};

/// EC2 delegates an IPv6 prefix of this length to an instance. A /64 does not identify a machine, because all machines of a subnet share
/// one. An instance cannot use another instance's prefix, because EC2 drops packets from addresses that EC2 did not assign to the instance
/// (EC2 User Guide, "Prefix delegation for Amazon EC2 network interfaces").
pub const MACHINE_PREFIX: MachinePrefix = MachinePrefix::of_bits(80);

pub struct AwsControlPlane {
    pub cluster: AwsCluster,
    pub instances: Instances,
    pub calls: CloudCalls,
}

impl AwsControlPlane {
    pub(crate) async fn new(
        options: &KopsControllerOptions,
        calls: CloudCalls,
    ) -> Result<AwsControlPlane, ControlPlaneError> {
        let verifier = options.server.as_ref().and_then(|server| server.provider.aws.as_ref());
        let region = match verifier.map(|aws| aws.region.clone()).filter(|region| !region.is_empty()) {
            Some(region) => region,
            None => own_region().await.map_err(ControlPlaneError::failed(
                "finding the AWS region of this machine (server.provider.aws.Region and AWS_REGION are not set)",
            ))?,
        };
        let cluster = AwsCluster {
            name: options.cluster_name.clone(),
            region: region.clone(),
            use_ip_based_node_names: verifier.is_some_and(|aws| aws.use_ip_based_node_names),
        };
        let ec2 = Ec2::of_region(&region).await.map_err(ControlPlaneError::client)?;
        Ok(AwsControlPlane { cluster, instances: Instances::new(ec2, calls.clone()), calls })
    }
}

/// The region in `AWS_REGION`, which kOps sets in the environment, else the region of this machine.
async fn own_region() -> Result<String, MetadataError> {
    if let Some(region) = std::env::var("AWS_REGION").ok().filter(|region| !region.is_empty()) {
        return Ok(region);
    }
    Ok(facts::observe(&facts::endpoint_of_environment()?, Retries::default()).await?.region)
}

impl AwsControlPlane {
    /// The EC2 instance of a Node, and its identity.
    async fn find_instance(
        &self,
        node: &ObservedNode,
    ) -> Result<(Arc<Ec2Instance>, Identity), NotIdentified> {
        let id = aws::instance_id(&node.provider_id)?;
        let found = self.instances.get(id).await.map_err(NotIdentified::unavailable)?;
        let instance = found.ok_or_else(|| Refusal::NoSuchInstance { instance: id.to_owned() })?;
        let identity = aws::identify(&node.name, &instance, &self.cluster)?;
        Ok((instance, identity))
    }
}

#[async_trait::async_trait]
impl ControlPlane for AwsControlPlane {
    async fn identify(&self, node: &ObservedNode, _since: Instant) -> Result<Identity, NotIdentified> {
        Ok(self.find_instance(node).await?.1)
    }

    /// Uses the `DescribeInstances` call that also identifies the Node. Upstream requests the network interfaces of each
    /// instance separately.
    async fn pod_ranges(&self, node: &ObservedNode, _since: Instant) -> Result<Vec<String>, NoPodRanges> {
        let (instance, _) = self.find_instance(node).await?;
        Ok(aws::pod_ranges(&instance)?)
    }

    async fn verifier(
        &self,
        server: &KopsControllerServerOptions,
    ) -> Result<Option<Box<dyn Verifier>>, ControlPlaneError> {
        let Some(aws) = &server.provider.aws else { return Ok(None) };
        let sts = Sts::of_region(&self.cluster.region, self.calls.clone()).await;
        Ok(Some(Box::new(AwsVerifier {
            cluster: self.cluster.clone(),
            nodes_roles: aws.nodes_roles.clone(),
            sts: sts.map_err(ControlPlaneError::client)?,
            instances: self.instances.clone(),
        })))
    }

    fn machine_prefix(&self) -> MachinePrefix {
        MACHINE_PREFIX
    }
}
