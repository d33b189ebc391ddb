//! The network settings in a node's configuration: address ranges, and the network plugin (upstream: `pkg/apis/nodeup/config.go`,
//! `NewConfig`; `pkg/apis/kops/cluster.go`).

use super::{Inputs, discovery};
use kops_agent_spec::{
    AmazonVPCNetworkingSpec, CNINetworkingSpec, CalicoNetworkingSpec, CiliumNetworkingSpec,
    FlannelNetworkingSpec, KindnetNetworkingSpec, KuberouterNetworkingSpec, NetworkingSpec,
};

/// The IPAM mode in which Cilium takes addresses from AWS.
const ENI: &str = "eni";

pub(super) fn networking(inputs: &Inputs<'_>) -> NetworkingSpec {
    let of = &inputs.cluster.spec.networking;
    let is_azure = inputs.cluster.spec.cloud_provider.azure.is_some();
    NetworkingSpec {
        non_masquerade_cidr: of.non_masquerade_cidr.clone(),
        service_cluster_ip_range: of.service_cluster_ip_range.clone(),
        network_id: if is_azure { of.network_id.clone() } else { String::new() },
        egress_proxy: of
            .egress_proxy
            .clone()
            .filter(|_| inputs.runs_api_server() || discovery::uses_gossip(inputs)),
        amazon_vpc: of.amazon_vpc.as_ref().map(|_| AmazonVPCNetworkingSpec::default()),
        calico: of.calico.as_ref().map(|calico| CalicoNetworkingSpec {
            wireguard_enabled: calico.wireguard_enabled.filter(|_| inputs.release.tells_of_wireguard()),
            ..CalicoNetworkingSpec::default()
        }),
        cilium: of.cilium.as_ref().map(|cilium| CiliumNetworkingSpec {
            ipam: if cilium.ipam == ENI { ENI.to_owned() } else { String::new() },
            ..CiliumNetworkingSpec::default()
        }),
        cni: of
            .cni
            .as_ref()
            .filter(|cni| cni.uses_secondary_ip)
            .map(|_| CNINetworkingSpec { uses_secondary_ip: true }),
        flannel: of.flannel.as_ref().map(|_| FlannelNetworkingSpec::default()),
        kube_router: of.kube_router.as_ref().map(|_| KuberouterNetworkingSpec::default()),
        kindnet: of.kindnet.as_ref().map(|_| KindnetNetworkingSpec::default()),
        ..NetworkingSpec::default()
    }
}

/// Whether machines need the CNI project's own plugins. Cilium needs these plugins only if it is chained to the plugin portmap, which
/// handles host ports.
pub(super) fn installs_cni_assets(inputs: &Inputs<'_>) -> bool {
    let of = &inputs.cluster.spec.networking;
    match &of.cilium {
        Some(cilium) => cilium.chaining_mode == "portmap",
        None => of.amazon_vpc.is_none() && of.calico.is_none(),
    }
}

/// Whether Cilium keeps its state in its own etcd cluster.
pub(super) fn uses_cilium_etcd(inputs: &Inputs<'_>) -> bool {
    let spec = &inputs.cluster.spec;
    spec.networking.cilium.is_some() && spec.etcd_clusters.iter().any(|cluster| cluster.name == "cilium")
}

/// Whether the network is kubenet or a variant of it.
pub(super) fn uses_kubenet(inputs: &Inputs<'_>) -> bool {
    let of = &inputs.cluster.spec.networking;
    of.kubenet.is_some() || of.gcp.is_some() || of.external.is_some() || of.kopeio.is_some()
}

/// Whether the maximum number of pods depends on the machine type. If so, a node must know its machine type.
pub(super) fn depends_on_machine_type(inputs: &Inputs<'_>) -> bool {
    let of = &inputs.cluster.spec.networking;
    let is_told_cilium = inputs.release.tells_cilium_the_machine_type();
    of.amazon_vpc.is_some() || is_told_cilium && of.cilium.as_ref().is_some_and(|cilium| cilium.ipam == ENI)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::derive::testing::Store;

    #[test]
    fn nodes_get_only_needed_settings_of_a_plugin() {
        for (plugin, told, installs, kubenet) in [
            ("amazonvpc: {imageName: x}", json!({"amazonVPC": {}}), false, false),
            (
                "calico: {wireguardEnabled: true, mtu: 1400}",
                json!({"calico": {"wireguardEnabled": true}}),
                false,
                false,
            ),
            ("cilium: {version: v1.18.0}", json!({"cilium": {}}), false, false),
            ("cilium: {ipam: eni}", json!({"cilium": {"ipam": "eni"}}), false, false),
            ("cilium: {chainingMode: portmap}", json!({"cilium": {}}), true, false),
            ("cni: {}", json!({}), true, false),
            ("cni: {usesSecondaryIP: true}", json!({"cni": {"usesSecondaryIP": true}}), true, false),
            ("flannel: {backend: vxlan}", json!({"flannel": {}}), true, false),
            ("kuberouter: {}", json!({"kubeRouter": {}}), true, false),
            ("kindnet: {version: v1}", json!({"kindnet": {}}), true, false),
            ("kubenet: {}", json!({}), true, true),
            ("gce: {}", json!({}), true, true),
            ("kopeio: {}", json!({}), true, true),
            ("external: {}", json!({}), true, true),
        ] {
            let store = Store::new(&format!("networking: {{{plugin}}}, networkID: vpc-1"), "role: Node");
            let inputs = store.inputs();
            let mut written = serde_json::to_value(networking(&inputs)).unwrap();
            written.as_object_mut().unwrap().remove("nonMasqueradeCIDR");
            assert_eq!(written, told, "{plugin}");
            assert_eq!(
                (installs_cni_assets(&inputs), uses_kubenet(&inputs)),
                (installs, kubenet),
                "{plugin}"
            );
        }
    }

    #[test]
    fn only_machines_with_an_api_server_get_the_proxy() {
        for (role, told) in [("Node", false), ("Master", true), ("APIServer", true)] {
            let store =
                Store::new("egressProxy: {httpProxy: {host: proxy, port: 80}}", &format!("role: {role}"));
            assert_eq!(networking(&store.inputs()).egress_proxy.is_some(), told, "{role}");
        }
    }
}
