//! Decides which work of kops-controller kops-agent can take over. The decision uses kops-controller's own configuration. The controller,
//! `converge --controller` and `controller takeover --check` use the decision.
//!
//! Upstream's kops-controller is one process with one Lease. It labels Nodes and does everything else that its configuration enables. It
//! exits permanently if it cannot listen on the port of its bootstrap server (upstream: `cmd/kops-controller/main.go`,
//! `pkg/server/server.go`). So if kops-agent cannot do part of the work, upstream keeps all of it: the Lease, the labels and the port.

mod servers;

use std::collections::BTreeSet;

use kops_agent_spec::{CloudProvider, Cluster, KopsControllerOptions};

pub use servers::{ControlPlane, Departure, Leaving, OtherServer, departure};

/// The clouds that give machines address ranges for pods and have an API to read the ranges. On any other cloud, upstream's kops-controller
/// exits (upstream: `setupCloudIPAM` in `cmd/kops-controller/main.go`).
const GIVES_POD_RANGES: [CloudProvider; 3] = [CloudProvider::Aws, CloudProvider::Gce, CloudProvider::Metal];

/// The name of upstream's kops-controller: the value of the label `k8s-app` of its pods, and the name of its process (upstream:
/// `upup/models/cloudup/resources/addons/kops-controller.addons.k8s.io/k8s-1.16.yaml.template`).
pub const UPSTREAM: &str = "kops-controller";

pub const PODS_OF_AGENT: &str = "kops-agent-controller";

/// The annotation whose value lists DNS names. dns-controller publishes these names (upstream:
/// `dns-controller/pkg/watchers/annotations.go`).
pub const INTERNAL_NAMES: &str = "dns.alpha.kubernetes.io/internal";

/// The DNS name by which machines find kops-controller (upstream: `kops-controller.internal.{{ ClusterName }}` in
/// `upup/models/cloudup/resources/addons/kops-controller.addons.k8s.io/k8s-1.16.yaml.template`).
pub fn bootstrap_name(cluster: &str) -> String {
    format!("kops-controller.internal.{cluster}")
}

/// Why kops-agent cannot take over the work of upstream's kops-controller. `None` if it can.
pub fn left_to_upstream(options: &KopsControllerOptions) -> Option<String> {
    let enabled = |enabled: Option<bool>| enabled == Some(true);
    if options.enable_cloud_ipam && !GIVES_POD_RANGES.contains(&options.cloud) {
        let cloud = options.cloud;
        return Some(format!(
            "enableCloudIPAM is set, but the cloud {cloud} gives its machines no address ranges for pods; kOps' own \
             kops-controller does not support this either"
        ));
    }
    let why = if options.capi.as_ref().is_some_and(|capi| enabled(capi.enabled)) {
        "capi.enabled is set, but kops-agent does not support Cluster API"
    } else if options.discovery.as_ref().is_some_and(|discovery| enabled(discovery.enabled)) {
        "discovery.enabled is set, but kops-agent does not write the names of a gossip cluster into CoreDNS"
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// Whether kOps writes no node configurations into the store of this cluster. In such a cluster, upstream's kops-controller makes the
/// configurations itself (upstream: `getNodeConfig` in `cmd/kops-controller/pkg/server/node_config.go`). kops-agent derives the
/// configurations that the store does not have.
pub fn kops_writes_no_configurations(options: &KopsControllerOptions) -> bool {
    options.server.is_some() && options.cloud == CloudProvider::Metal
}

/// Whether kops-agent serves bootstrap requests in a cluster with this configuration.
pub fn serves_machines(options: &KopsControllerOptions) -> bool {
    options.server.is_some() && left_to_upstream(options).is_none()
}

/// Whether machines find kops-controller by DNS. If not, the user-data of machines contains kops-controller's addresses.
pub fn is_found_by_dns(cluster: &Cluster) -> bool {
    cluster.spec.networking.topology.as_ref().is_none_or(|topology| topology.dns != "None")
}

pub fn publishes(annotation: &str, name: &str) -> bool {
    annotation.split(',').any(|published| published.trim().trim_end_matches('.') == name)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    pub name: String,
    /// The pod's Node. Empty before the pod is scheduled.
    pub node: String,
    /// Whether the pod uses the host network. dns-controller publishes no other pods.
    pub has_host_network: bool,
    /// The value of the pod's annotation [`INTERNAL_NAMES`]. Empty if it has no such annotation.
    pub internal_names: String,
    /// Whether the pod belongs to upstream's kops-controller. A take-over by kops-agent stops these pods.
    pub is_of_upstream: bool,
}

/// The control plane Nodes whose addresses no pod publishes under the DNS name `name` once upstream's pods have stopped.
pub fn unpublished<'a>(name: &str, pods: &[Pod], control_plane: &'a BTreeSet<String>) -> BTreeSet<&'a str> {
    let stays =
        |pod: &&Pod| !pod.is_of_upstream && pod.has_host_network && publishes(&pod.internal_names, name);
    let published: BTreeSet<&str> = pods.iter().filter(stays).map(|pod| pod.node.as_str()).collect();
    control_plane.iter().map(String::as_str).filter(|node| !published.contains(node)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn options(more: &str) -> KopsControllerOptions {
        let text = format!("{{clusterName: c, server: {{Listen: ':3988'}}, {more}}}");
        KopsControllerOptions::parse(text.as_bytes(), "config.yaml").unwrap()
    }

    #[test]
    fn unsupported_work_leaves_everything_to_upstream() {
        for cloud in ["aws", "azure", "digitalocean", "gce", "hetzner", "linode", "scaleway"] {
            for more in [
                "enableCloudIPAM: false",
                "capi: {enabled: false}",
                "discovery: {enabled: false}",
                "capi: {}, discovery: {}",
            ] {
                let options = options(&format!("cloud: {cloud}, {more}"));
                assert_eq!(left_to_upstream(&options), None, "{more}");
                assert!(serves_machines(&options), "{more}");
            }
            for (more, named) in [
                ("capi: {enabled: true}", "capi.enabled"),
                ("discovery: {enabled: true}", "discovery.enabled"),
            ] {
                let options = options(&format!("cloud: {cloud}, {more}"));
                assert!(left_to_upstream(&options).unwrap().contains(named), "{more}");
                assert!(!serves_machines(&options), "{more}");
            }
        }
        for cloud in ["aws", "gce", "metal"] {
            let text = format!("{{clusterName: c, cloud: {cloud}, server: {{Listen: ':3988', pki: {{}}}}}}");
            let options = KopsControllerOptions::parse(text.as_bytes(), "config.yaml").unwrap();
            assert!(serves_machines(&options), "{cloud}");
        }
        for (cloud, is_left) in [
            ("aws", false),
            ("gce", false),
            ("metal", false),
            ("azure", true),
            ("hetzner", true),
            ("digitalocean", true),
            ("linode", true),
            ("openstack", true),
            ("scaleway", true),
        ] {
            let options = options(&format!("cloud: {cloud}, enableCloudIPAM: true"));
            let why = left_to_upstream(&options);
            assert_eq!(why.is_some(), is_left, "{why:?}");
            assert!(why.is_none_or(|why| why.contains("enableCloudIPAM") && why.contains(cloud)));
            assert_eq!(serves_machines(&options), !is_left);
        }
    }

    #[test]
    fn a_name_survives_if_another_pod_publishes_it() {
        const NAME: &str = "kops-controller.internal.c.example.com";
        let pod = |node: &str, internal_names: &str| Pod {
            node: node.into(),
            has_host_network: true,
            internal_names: internal_names.into(),
            ..Pod::default()
        };
        let control_plane = BTreeSet::from(["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        let both = format!("api.internal.c.example.com, {NAME}");
        let pods = [
            pod("a", &both),
            pod("b", "api.internal.c.example.com"),
            Pod { is_of_upstream: true, ..pod("b", NAME) },
            Pod { has_host_network: false, ..pod("c", NAME) },
            pod("d", NAME),
        ];
        assert_eq!(unpublished(NAME, &pods, &control_plane), BTreeSet::from(["b", "c"]));
        assert!(publishes(&format!("{NAME}."), NAME) && !publishes("x.kops-controller.internal", NAME));
    }

    #[test]
    fn without_a_server_in_the_configuration_no_machine_bootstraps() {
        let options = KopsControllerOptions::parse(b"{clusterName: c, cloud: aws}", "config.yaml").unwrap();
        assert!(!serves_machines(&options));
    }
}
