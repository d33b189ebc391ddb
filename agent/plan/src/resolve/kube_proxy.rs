//! kube-proxy's configuration with all defaults.
//!
//! Source: nodeup/pkg/model/kube_proxy.go, and `evaluateBindAddress` in upup/pkg/fi/nodeup/command.go.

use std::net::IpAddr;

use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::{KubeProxyConfig, Quantity};

use super::Problems;
use super::basis::Basis;

/// A value of `bindAddress` that stands for the machine's own address.
const AWS_LOCAL_ADDRESS: &str = "@aws";
/// Default for the maximum number of tracked connections per CPU.
const DEFAULT_CONNTRACK_MAX_PER_CORE: i32 = 131_072;

/// Resolves kube-proxy's configuration; `None` if the network plugin replaces kube-proxy.
pub(super) fn resolve(basis: &Basis<'_>, problems: &mut Problems) -> Option<KubeProxyConfig> {
    let mut config = basis.config.kube_proxy.clone()?;
    config.hostname_override = basis.node_name.hostname_override.clone();
    config.bind_address =
        problems.keep("KubeProxy.bindAddress", bind_address(basis, &config.bind_address))?;
    let must_use_nftables = basis.distribution.force_nftables && basis.release.forces_nftables();
    if must_use_nftables && matches!(config.proxy_mode.as_str(), "" | "iptables") {
        config.proxy_mode = "nftables".into();
    }
    if config.master.is_empty() {
        // A control-plane machine uses its own API server, because DNS may not have the API's name until
        // kube-proxy runs.
        config.master = if basis.is_control_plane() {
            "https://127.0.0.1".into()
        } else {
            format!("https://{}", basis.config.api_internal_name())
        };
    }
    config.cpu_request.get_or_insert_with(|| Quantity::from("100m"));
    config.conntrack_max_per_core.get_or_insert(DEFAULT_CONNTRACK_MAX_PER_CORE);
    Some(config)
}

fn bind_address(basis: &Basis<'_>, address: &str) -> Result<String, Invalid> {
    match address {
        "" => Ok(String::new()),
        AWS_LOCAL_ADDRESS => match basis.aws() {
            Some(aws) => Ok(aws.local_ipv4.split_whitespace().next().unwrap_or_default().to_owned()),
            None => {
                Err(Invalid::new(format!("{AWS_LOCAL_ADDRESS:?} is valid only on AWS; set an IP address")))
            }
        },
        address => match address.parse::<IpAddr>() {
            Ok(_) => Ok(address.to_owned()),
            Err(_) => Err(Invalid::new(format!("{address:?} is no IP address"))),
        },
    }
}
