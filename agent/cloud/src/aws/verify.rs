//! Verifies AWS machines: STS names the instance whose role signed the request, and EC2 describes this instance.

use std::sync::Arc;

use kops_agent_cluster::bootstrap::aws_token::{AwsToken, Expected};
use kops_agent_cluster::identity::Refusal as NoNode;
use kops_agent_cluster::identity::aws::{self, AwsCluster, Ec2Instance};

use super::instances::Instances;
use super::sts::Sts;
use crate::verify::{
    Examined, Presented, Proof, Refusal, VerifiedNode, Verifier, challenge_endpoint, seconds_of,
};

pub struct AwsVerifier {
    pub cluster: AwsCluster,
    /// The IAM roles that nodes have.
    pub nodes_roles: Vec<String>,
    pub sts: Sts,
    /// A clone of the node controller's `Instances`, so that the verifier and the node controller share calls.
    pub instances: Instances,
}

impl Verifier for AwsVerifier {
    fn examine<'a>(&'a self, presented: &Presented<'_>) -> Option<Result<Examined<'a>, Refusal>> {
        let expected =
            Expected { sts_host: self.sts.host(), region: &self.cluster.region, now: presented.now };
        let token = match AwsToken::parse(presented.token, presented.body, &expected)? {
            Ok(token) => token,
            Err(problem) => return Some(Err(Refusal::not_verified(problem.reason(), problem))),
        };
        Some(Ok(Examined {
            fingerprint: token.signature.clone().into_bytes(),
            signed_at: Some(token.signed_at),
            proof: Proof::Token,
            verification: Box::pin(self.verify(token)),
            signature: None,
            confirmation: None,
        }))
    }
}

impl AwsVerifier {
    async fn verify(&self, token: AwsToken) -> Result<VerifiedNode, Refusal> {
        let own = self.sts.own().await.map_err(|error| {
            let problem = format!("cannot ask STS for the role of kops-controller: {error}");
            Refusal::unavailable("StsUnavailable", problem)
        })?;
        let caller = self.sts.caller(&token.call).await.map_err(|error| match error.is_refusal() {
            true => {
                let problem = format!("STS rejects the request that the machine signed: {error}");
                Refusal::not_verified("RefusedBySts", problem)
            }
            false => Refusal::unavailable("StsUnavailable", error),
        })?;
        let id = caller
            .instance_id(own, &self.nodes_roles)
            .map_err(|refusal| Refusal::not_verified(refusal.reason(), refusal))?;
        let instance = match self.instances.get(id).await {
            Ok(Some(instance)) => instance,
            Ok(None) => {
                return Err(Refusal::of_instance(&NoNode::NoSuchInstance { instance: id.to_owned() }));
            }
            Err(error) => return Err(Refusal::unavailable("Ec2Unavailable", error)),
        };
        self.node(&instance, &own.account)
    }

    fn node(&self, instance: &Arc<Ec2Instance>, account: &str) -> Result<VerifiedNode, Refusal> {
        if !instance.owner_id.is_empty() && instance.owner_id != account {
            let problem = format!("the instance {} belongs to another AWS account", instance.instance_id);
            return Err(Refusal::not_verified("OtherAccount", problem));
        }
        if self.cluster.use_ip_based_node_names && instance.private_ip_address.is_empty() {
            let problem = format!(
                "this cluster names Nodes after private IPv4 addresses, but the instance {} has none",
                instance.instance_id
            );
            return Err(Refusal::not_verified("NoNodeName", problem));
        }
        let node_name = aws::node_name(instance, &self.cluster);
        let identity = aws::identify(&node_name, instance, &self.cluster)
            .map_err(|refusal| Refusal::of_instance(&refusal))?;
        Ok(VerifiedNode {
            instance: instance.instance_id.clone(),
            certificate_names: aws::certificate_names(instance, &self.cluster),
            instance_group: identity.instance_group,
            challenge_endpoint: aws::address(instance).map(challenge_endpoint).unwrap_or_default(),
            node_name,
            addresses: Vec::new(),
            launched: seconds_of(&instance.launch_time),
        })
    }
}
