//! The replacement of kubenet. containerd makes a CNI configuration from a template as soon as the node has a
//! pod CIDR. Packets that leave the cluster get the node's address as their source.

use crate::desired::{firewall, paths};
use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, File, Mode};

const MASQUERADE_SCRIPT: &str = "/opt/kops/bin/cni-iptables-setup";

/// Adds containerd's template for the CNI configuration. Also adds the masquerade rules if the cluster has a
/// `nonMasqueradeCIDR` that does not contain all addresses.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    state.add(File::text(paths::CONTAINERD_CNI_TEMPLATE, cni_template(node)));
    let inside = &node.config.networking.non_masquerade_cidr;
    if !inside.is_empty() && !inside.ends_with("/0") {
        state.add(File::text(MASQUERADE_SCRIPT, masquerade_script(inside)).mode(Mode::EXECUTABLE));
        state.add(firewall::unit(
            "cni-iptables-setup.service",
            "Configure iptables for kubernetes CNI",
            MASQUERADE_SCRIPT,
        ));
    }
}

/// containerd replaces `{{.PodCIDR}}` with the node's pod CIDR. Each line equals the line in
/// upstream's file, so a node that moves from upstream keeps its file.
fn cni_template(node: &NodeConfig) -> String {
    let mut routes = vec![serde_json::json!({ "dst": "0.0.0.0/0" })];
    if node.is_ipv6_only() {
        routes.push(serde_json::json!({ "dst": "::/0" }));
    }
    let routes = serde_json::Value::from(routes);
    let cni_version = node.release().kubenet_cni_version();
    format!(
        r#"{{
    "cniVersion": "{cni_version}",
    "name": "k8s-pod-network",
    "plugins": [
        {{
            "type": "ptp",
            "ipam": {{
                "type": "host-local",
                "ranges": [[{{"subnet": "{{{{.PodCIDR}}}}"}}]],
                "routes": {routes}
            }}
        }},
        {{
            "type": "portmap",
            "capabilities": {{"portMappings": true}}
        }}
    ]
}}
"#
    )
}

/// A script that makes an iptables chain for packets that leave the node. Packets to `inside` keep the pod's address.
/// All other packets get the node's address.
fn masquerade_script(inside: &str) -> String {
    format!(
        r#"#!/bin/bash
# Written by kops-agent; changes are undone.

iptables -w -t nat -N IP-MASQ
iptables -w -t nat -A POSTROUTING -m comment --comment "ip-masq: ensure nat POSTROUTING directs all non-LOCAL destination traffic to our custom IP-MASQ chain" -m addrtype ! --dst-type LOCAL -j IP-MASQ
iptables -w -t nat -A IP-MASQ -d {inside} -m comment --comment "ip-masq: pod cidr is not subject to MASQUERADE" -j RETURN
iptables -w -t nat -A IP-MASQ -m comment --comment "ip-masq: outbound traffic is subject to MASQUERADE (must be last in chain)" -j MASQUERADE
"#
    )
}
