//! The name under which a machine registers its Node object.
//!
//! kops-controller derives the same name from what the cloud says and refuses any other
//! (`evaluateHostnameOverride` in upup/pkg/fi/nodeup/command.go).

use std::net::Ipv4Addr;

use crate::facts::{AwsFacts, Facts};
use crate::spec::{BootConfig, CloudProvider, NodeupConfig};

/// The node's name.
pub(super) fn node_name(boot: &BootConfig, config: &NodeupConfig, facts: &Facts) -> Result<String, String> {
    let cloud = &facts.cloud;
    let missing = |what: &str| {
        format!("the name of the node comes from {what}, which could not be read on this machine")
    };
    let name = match boot.cloud_provider {
        CloudProvider::Aws => {
            let aws = cloud.aws.as_ref().ok_or_else(|| missing("EC2's instance metadata"))?;
            if config.use_ip_based_node_names { ip_based_name(aws)? } else { aws.instance_id.clone() }
        }
        CloudProvider::Gce => {
            let gce = cloud.gce.as_ref().ok_or_else(|| missing("GCE's metadata server"))?;
            gce.hostname.split('.').next().unwrap_or_default().to_owned()
        }
        _ => config.kubelet_config.hostname_override.clone(),
    };
    let name = if name.is_empty() { &facts.hostname } else { &name };
    Ok(name.trim().to_lowercase())
}

/// The private DNS name that EC2 gives an instance after its address. An instance launched with a
/// resource-based name keeps it, and would never match.
fn ip_based_name(aws: &AwsFacts) -> Result<String, String> {
    if aws.local_hostname.starts_with(&aws.instance_id) {
        return Err(format!(
            "instance {} was launched with a resource-based hostname, but useIPBasedNodeNames needs subnets that give IP-based ones",
            aws.instance_id
        ));
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
