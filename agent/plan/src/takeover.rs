//! Which of kops-controller's work kops-agent can take over, decided from kops-controller's own configuration: for the
//! controller, for `converge --controller`, and for `controller takeover --check`.
//!
//! Upstream's process is one: it labels Nodes, and does whatever else its configuration asks for, under one Lease, and it
//! ends for good where it cannot listen on the port of its bootstrap server
//! (upstream: `cmd/kops-controller/main.go`, `pkg/server/server.go`). So where any of that work is left to it, all of it is:
//! the Lease, the labels and the port.

use crate::spec::{CloudProvider, KopsControllerOptions};

/// The name at which machines find kops-controller (upstream: `kops-controller.internal.{{ ClusterName }}` in
/// `upup/models/cloudup/resources/addons/kops-controller.addons.k8s.io/k8s-1.16.yaml.template`).
pub fn bootstrap_name(cluster: &str) -> String {
    format!("kops-controller.internal.{cluster}")
}

/// Why all of kops-controller's work stays with kOps' own kops-controller, if it does.
pub fn left_to_upstream(options: &KopsControllerOptions) -> Option<String> {
    let enabled = |enabled: Option<bool>| enabled == Some(true);
    let why = match options.cloud {
        CloudProvider::Aws | CloudProvider::Gce | CloudProvider::Hetzner if options.enable_cloud_ipam => {
            "enableCloudIPAM is set, and kops-agent does not give Nodes the addresses of their pods"
        }
        CloudProvider::Aws | CloudProvider::Gce | CloudProvider::Hetzner
            if options.capi.as_ref().is_some_and(|capi| enabled(capi.enabled)) =>
        {
            "capi.enabled is set, and kops-agent does nothing for Cluster API"
        }
        CloudProvider::Aws | CloudProvider::Gce | CloudProvider::Hetzner
            if options.discovery.as_ref().is_some_and(|discovery| enabled(discovery.enabled)) =>
        {
            "discovery.enabled is set, and kops-agent does not write the names of a gossip cluster into CoreDNS"
        }
        CloudProvider::Aws | CloudProvider::Gce | CloudProvider::Hetzner
            if options.server.as_ref().is_some_and(|server| server.pki.is_some()) =>
        {
            "server.pki is set, and kops-agent cannot verify machines that prove who they are by a key of their own"
        }
        CloudProvider::Aws | CloudProvider::Gce | CloudProvider::Hetzner => return None,
        cloud => {
            return Some(format!(
                "nodes of the cloud {cloud} cannot be identified yet, so kops-agent cannot label them"
            ));
        }
    };
    Some(why.to_owned())
}

/// Whether machines bootstrap from kops-agent in a cluster with this configuration.
pub fn serves_machines(options: &KopsControllerOptions) -> bool {
    options.server.is_some() && left_to_upstream(options).is_none()
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
    fn what_upstream_has_to_do_itself_leaves_it_the_port_too() {
        for cloud in ["aws", "gce", "hetzner"] {
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
                ("enableCloudIPAM: true", "enableCloudIPAM"),
                ("capi: {enabled: true}", "capi.enabled"),
                ("discovery: {enabled: true}", "discovery.enabled"),
            ] {
                let options = options(&format!("cloud: {cloud}, {more}"));
                assert!(left_to_upstream(&options).unwrap().contains(named), "{more}");
                assert!(!serves_machines(&options), "{more}");
            }
        }
        for cloud in ["aws", "gce", "hetzner"] {
            let text = format!("{{clusterName: c, cloud: {cloud}, server: {{Listen: ':3988', pki: {{}}}}}}");
            let options = KopsControllerOptions::parse(text.as_bytes(), "config.yaml").unwrap();
            assert!(left_to_upstream(&options).unwrap().contains("server.pki"));
            assert!(!serves_machines(&options));
        }
        for cloud in ["azure", "openstack", "metal"] {
            let options = options(&format!("cloud: {cloud}"));
            assert!(left_to_upstream(&options).unwrap().contains(cloud));
        }
    }

    #[test]
    fn without_a_server_in_the_configuration_nobody_bootstraps() {
        let options = KopsControllerOptions::parse(b"{clusterName: c, cloud: aws}", "config.yaml").unwrap();
        assert!(!serves_machines(&options));
    }
}
