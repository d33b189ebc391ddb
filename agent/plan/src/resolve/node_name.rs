//! The name under which a machine registers its Node object.
//!
//! kops-controller derives this name from the cloud's data and rejects any other name. A user's
//! `hostnameOverride` has never had an effect on any cloud (`evaluateHostnameOverride` in
//! upup/pkg/fi/nodeup/command.go).

use std::net::Ipv4Addr;

use kops_agent_spec::facts::{AwsFacts, Facts};
use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::{CloudProvider, NodeupConfig};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName {
    /// The name of the Node object.
    pub name: String,
    /// The value of `hostnameOverride` for kubelet and kube-proxy. Empty if the node has the name of the host.
    pub hostname_override: String,
}

pub(super) fn node_name(
    provider: CloudProvider,
    config: &NodeupConfig,
    facts: &Facts,
) -> Result<NodeName, Invalid> {
    let hostname_override = hostname_override(provider, config, facts)?;
    let name = if hostname_override.is_empty() { &facts.hostname } else { &hostname_override };
    Ok(NodeName { name: name.trim().to_lowercase(), hostname_override })
}

/// The names that the Node of this machine may have. On AWS there are two names, and the machine's configuration selects one. Empty if the
/// facts lack the description of the cloud.
pub fn possible_node_names(provider: CloudProvider, facts: &Facts) -> Vec<String> {
    let name = |use_ip_based_node_names| {
        let config = NodeupConfig { use_ip_based_node_names, ..NodeupConfig::default() };
        node_name(provider, &config, facts).ok().map(|node| node.name).filter(|name| !name.is_empty())
    };
    let mut names: Vec<String> = [false, true].into_iter().filter_map(name).collect();
    names.dedup();
    names
}

fn hostname_override(
    provider: CloudProvider,
    config: &NodeupConfig,
    facts: &Facts,
) -> Result<String, Invalid> {
    let cloud = &facts.cloud;
    match provider {
        CloudProvider::Aws => {
            let aws = cloud.aws.as_ref().ok_or_else(|| unread("EC2's instance metadata"))?;
            if config.use_ip_based_node_names { ip_based_name(aws) } else { Ok(aws.instance_id.clone()) }
        }
        CloudProvider::Gce => {
            let gce = cloud.gce.as_ref().ok_or_else(|| unread("GCE's metadata server"))?;
            Ok(gce.hostname.split('.').next().unwrap_or_default().to_owned())
        }
        CloudProvider::DigitalOcean => cloud
            .digital_ocean
            .as_ref()
            .map(|droplet| droplet.private_ipv4.clone())
            .filter(|address| !address.is_empty())
            .ok_or_else(|| unread("the droplet's private address")),
        CloudProvider::Linode => cloud
            .linode
            .as_ref()
            .map(|instance| instance.label.clone())
            .ok_or_else(|| unread("the label in Linode's metadata")),
        CloudProvider::Azure
        | CloudProvider::Hetzner
        | CloudProvider::Metal
        | CloudProvider::Openstack
        | CloudProvider::Scaleway => Ok(String::new()),
    }
}

fn unread(what: &str) -> Invalid {
    Invalid::new(format!("the name of the node comes from {what}, which could not be read on this machine"))
}

/// The private DNS name that EC2 derives from an instance's address. Fails for an instance with a resource-based name, because EC2 derives
/// no name from its address.
fn ip_based_name(aws: &AwsFacts) -> Result<String, Invalid> {
    if aws.local_hostname.starts_with(&aws.instance_id) {
        return Err(Invalid::new(format!(
            "instance {} was launched with a resource-based hostname, but useIPBasedNodeNames needs subnets with IP-based hostnames",
            aws.instance_id
        )));
    }
    let address: Ipv4Addr = aws.local_ipv4.parse().map_err(|_| {
        format!("local-ipv4 of EC2's instance metadata is {:?}, which is no IPv4 address", aws.local_ipv4)
    })?;
    let dashed = address.to_string().replace('.', "-");
    Ok(match aws.region.as_str() {
        "us-east-1" => format!("ip-{dashed}.ec2.internal"),
        region => format!("ip-{dashed}.{region}.compute.internal"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_one_possible_name_and_on_aws_two() {
        let mut facts = Facts { hostname: "Own-1".into(), ..Facts::default() };
        facts.cloud.aws = Some(AwsFacts {
            instance_id: "i-0123".into(),
            region: "us-east-1".into(),
            local_ipv4: "10.0.0.5".into(),
            ..AwsFacts::default()
        });
        let names = |provider| possible_node_names(provider, &facts);
        assert_eq!(names(CloudProvider::Aws), ["i-0123", "ip-10-0-0-5.ec2.internal"]);
        assert_eq!(names(CloudProvider::Hetzner), ["own-1"]);
        assert_eq!(names(CloudProvider::Gce), [""; 0], "its metadata is not known");
    }
}
