//! Derives the user-data of the group's machines, for checks and for tests that start machines (upstream:
//! `pkg/nodemodel/nodeupconfigbuilder.go`, `pkg/model/bootstrapscript.go`).

use std::net::IpAddr;

use ipnet::IpNet;

use super::Inputs;
use super::authorities::keyset;
use super::config::config_base;
use super::discovery;
use crate::resolve::{KUBERNETES_CA, Problems};
use kops_agent_cluster::bootstrap::{server_name, server_url};
use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::{BootConfig, CloudProvider, ConfigServerOptions, InstanceGroupRole};

/// Derives the boot config. `nodeup_config_hash` is [`kops_agent_spec::NodeupConfig::hash`] of the bytes of the group's
/// `nodeupconfig.yaml`.
pub fn boot_config(inputs: &Inputs<'_>, nodeup_config_hash: &str) -> Result<BootConfig, Problems> {
    let mut problems = Problems::default();
    let cloud_provider = inputs
        .cluster
        .cloud_provider()
        .ok_or_else(|| Invalid::new("it is missing; name the cloud that the cluster is in"));
    let Some(cloud_provider) = problems.keep("spec.cloudProvider", cloud_provider) else {
        return Err(problems);
    };

    let api_server_ips = api_server_ips(inputs, cloud_provider, &mut problems);
    let asks = !inputs.runs_api_server() && discovery::asks_kops_controller(inputs);
    let config_server = asks.then(|| config_server(inputs, &api_server_ips, &mut problems));
    let boot = BootConfig {
        cloud_provider,
        config_base: (!asks).then(|| config_base(inputs)),
        config_server,
        api_server_ips,
        cluster_name: inputs.cluster.metadata.name.clone(),
        instance_group_name: inputs.instance_group.metadata.name.clone(),
        instance_group_role: inputs.role(),
        nodeup_config_hash: nodeup_config_hash.to_owned(),
        etcd_ips: etcd_ips(inputs, &mut problems),
    };
    problems.unless_any(boot)
}

fn config_server(inputs: &Inputs<'_>, addresses: &[String], problems: &mut Problems) -> ConfigServerOptions {
    let name = server_name(&inputs.cluster.metadata.name);
    let ca_certificates = if inputs.role() == InstanceGroupRole::Bastion {
        String::new()
    } else {
        keyset(inputs, KUBERNETES_CA, problems)
            .map(|keyset| keyset.trusted_certificates_pem())
            .unwrap_or_default()
    };
    if addresses.is_empty() {
        return ConfigServerOptions {
            servers: vec![server_url(&name)],
            tls_server_name: String::new(),
            ca_certificates,
        };
    }
    let servers = addresses.iter().map(|address| server_url(address)).collect();
    let tls_server_name = if inputs.release.tells_the_servers_name() { name } else { String::new() };
    ConfigServerOptions { servers, tls_server_name, ca_certificates }
}

/// The addresses of the API for this group's machines. Empty if the machines find the API by name. On Hetzner, Scaleway, DigitalOcean and
/// metal, all machines get addresses. On other clouds, machines get addresses only if they reach kops-controller through a load balancer,
/// and since kOps 1.36 only if they run no API server.
pub(super) fn api_server_ips(
    inputs: &Inputs<'_>,
    cloud: CloudProvider,
    problems: &mut Problems,
) -> Vec<String> {
    let by_cloud = matches!(
        cloud,
        CloudProvider::Hetzner | CloudProvider::Scaleway | CloudProvider::DigitalOcean | CloudProvider::Metal
    );
    let is_told = !inputs.runs_api_server() || inputs.release.tells_api_servers_their_addresses();
    let by_dns = discovery::uses_load_balancer(inputs) && is_told;
    let mut addresses = inputs.api_server_addresses.to_vec();
    if addresses.is_empty() || !(by_cloud || by_dns) {
        return Vec::new();
    }
    addresses.sort();
    match cloud {
        CloudProvider::Aws | CloudProvider::Hetzner | CloudProvider::Openstack => {
            within_networks(inputs, &addresses, problems)
        }
        CloudProvider::Gce => within_subnets(inputs, &addresses, problems),
        CloudProvider::DigitalOcean
        | CloudProvider::Scaleway
        | CloudProvider::Azure
        | CloudProvider::Metal => addresses,
        CloudProvider::Linode => Vec::new(),
    }
}

/// Returns the private addresses that are inside the cluster's networks, and all IPv6 addresses. An address in several networks is returned
/// several times, as in upstream.
fn within_networks(inputs: &Inputs<'_>, addresses: &[String], problems: &mut Problems) -> Vec<String> {
    let networking = &inputs.cluster.spec.networking;
    let is_ipv6_only =
        networking.non_masquerade_cidr.contains(':') && inputs.release.tells_reachable_addresses_only();
    let mut ranges = Vec::new();
    for range in &networking.additional_network_cidrs {
        ranges.extend(problems.keep("spec.additionalNetworkCIDRs", range_of(range)));
    }
    ranges.extend(problems.keep("spec.networkCIDR", range_of(&networking.network_cidr)));
    let mut within = Vec::new();
    for address in addresses {
        let Ok(ip) = address.parse::<IpAddr>() else { continue };
        if is_ipv6_only && !ip.is_ipv6() {
            continue;
        }
        let taken = ranges.iter().filter(|range| ip.is_ipv6() || range.contains(&ip));
        within.extend(taken.map(|_| address.clone()));
    }
    within
}

/// Returns the addresses inside the cluster's subnets. On GCE, only subnets have ranges, and networks have none.
fn within_subnets(inputs: &Inputs<'_>, addresses: &[String], problems: &mut Problems) -> Vec<String> {
    let mut ranges = Vec::new();
    for (index, subnet) in inputs.cluster.spec.networking.subnets.iter().enumerate() {
        ranges.extend(problems.keep(&format!("spec.subnets[{index}].cidr"), range_of(&subnet.cidr)));
    }
    let mut within = Vec::new();
    for address in addresses {
        let Ok(ip) = address.parse::<IpAddr>() else { continue };
        within.extend(ranges.iter().filter(|range| range.contains(&ip)).map(|_| address.clone()));
    }
    within
}

fn range_of(range: &str) -> Result<IpNet, Invalid> {
    range.parse().map_err(|_| {
        Invalid::new(format!("{range:?} is not a range of addresses; use a range such as 10.0.0.0/16"))
    })
}

fn etcd_ips(inputs: &Inputs<'_>, problems: &mut Problems) -> Vec<String> {
    if inputs.role() != InstanceGroupRole::APIServer || !inputs.release.api_servers_know_etcd_addresses() {
        return Vec::new();
    }
    if inputs.etcd_addresses.len() > 1 {
        problems.add(
            "EtcdIPs",
            format!(
                "etcd's load balancer has {} addresses, but the boot config supports only one",
                inputs.etcd_addresses.len()
            ),
        );
    }
    inputs.etcd_addresses.to_vec()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::derive::testing::Store;

    fn addresses(list: &[&str]) -> Vec<String> {
        list.iter().map(|address| (*address).to_owned()).collect()
    }

    fn told(cluster: &str, role: &str, known: &[&str]) -> Vec<String> {
        let store = Store::new(cluster, &format!("role: {role}"));
        let known = addresses(known);
        let inputs = Inputs { api_server_addresses: &known, ..store.inputs() };
        let mut problems = Problems::default();
        let ips = api_server_ips(&inputs, inputs.cluster.cloud_provider().unwrap(), &mut problems);
        assert!(problems.is_empty(), "{problems}");
        ips
    }

    const AWS: &str = "networkCIDR: 172.20.0.0/16, topology: {dns: {type: None}}";

    #[test]
    fn on_aws_nodes_get_private_and_ipv6_addresses_of_the_api() {
        let known = ["name.elb.amazonaws.com", "2001:db8::1", "172.20.1.1", "52.1.1.1"];
        assert_eq!(told(AWS, "Node", &known), ["172.20.1.1", "2001:db8::1"]);
        assert!(told(AWS, "Master", &known).is_empty());
        assert!(told("networkCIDR: 172.20.0.0/16", "Node", &known).is_empty());
        let twice = format!("{AWS}, additionalNetworkCIDRs: [10.0.0.0/8]");
        assert_eq!(told(&twice, "Node", &known), ["172.20.1.1", "2001:db8::1", "2001:db8::1"]);
        let ipv6_only = format!("{AWS}, nonMasqueradeCIDR: '::/0'");
        assert_eq!(told(&ipv6_only, "Node", &known), ["2001:db8::1"]);
    }

    #[test]
    fn on_other_clouds_nodes_get_reachable_addresses_of_the_api() {
        let gce =
            "cloudProvider: gce, topology: {dns: {type: None}}, subnets: [{name: a, cidr: 10.0.0.0/16}]";
        assert_eq!(told(gce, "Node", &["10.0.1.1", "34.1.1.1"]), ["10.0.1.1"]);
        let hetzner = "cloudProvider: hetzner, networkCIDR: 10.0.0.0/16";
        assert_eq!(told(hetzner, "Master", &["10.0.1.1", "34.1.1.1"]), ["10.0.1.1"]);
        assert_eq!(told("cloudProvider: digitalocean", "Master", &["34.1.1.1"]), ["34.1.1.1"]);
    }

    /// Source: `BuildConfig` and `selectControlPlaneIPs` in `pkg/nodemodel/nodeupconfigbuilder.go`.
    #[test]
    fn only_machines_with_an_api_server_read_the_store() {
        const ADDRESSES: [&str; 2] = ["10.0.1.1", "34.1.1.1"];
        for (cloud, of_nodes, of_control_plane) in [
            ("cloudProvider: aws", &ADDRESSES[..1], &[][..]),
            ("cloudProvider: azure", &ADDRESSES, &[]),
            ("cloudProvider: digitalocean", &ADDRESSES, &ADDRESSES),
            ("cloudProvider: gce, subnets: [{name: a, cidr: 10.0.0.0/16}]", &ADDRESSES[..1], &[]),
            ("cloudProvider: hetzner", &ADDRESSES[..1], &ADDRESSES[..1]),
            ("cloudProvider: linode", &[], &[]),
            ("cloudProvider: openstack", &ADDRESSES[..1], &[]),
            ("cloudProvider: scaleway", &ADDRESSES, &ADDRESSES),
            ("labels: {alpha.kops.k8s.io/cloud: metal}", &ADDRESSES, &ADDRESSES),
        ] {
            let cluster = format!("{cloud}, networkCIDR: 10.0.0.0/16, topology: {{dns: {{type: None}}}}");
            for (role, addresses, asks) in [
                ("Master", of_control_plane, false),
                ("APIServer", of_control_plane, false),
                ("Bastion", of_nodes, true),
            ] {
                let store = Store::new(&cluster, &format!("role: {role}"));
                let known = self::addresses(&ADDRESSES);
                let inputs = Inputs { api_server_addresses: &known, ..store.inputs() };
                let boot = boot_config(&inputs, "hash").unwrap();
                assert_eq!(boot.api_server_ips, addresses, "{role} of {cloud}");
                assert_eq!(boot.asks_server(), asks, "{role} of {cloud}");
                assert_eq!(boot.store_base().is_some(), !asks, "{role} of {cloud}");
                let servers = boot.config_server.map(|server| server.servers).unwrap_or_default();
                let named = match addresses {
                    _ if !asks => Vec::new(),
                    [] => vec![server_url("kops-controller.internal.c.example.com")],
                    addresses => addresses.iter().map(|address| server_url(address)).collect(),
                };
                assert_eq!(servers, named, "{role} of {cloud}");
            }
        }
    }

    #[test]
    fn bastions_get_a_server_without_an_authority() {
        let store = Store::new(AWS, "role: Bastion");
        let boot = boot_config(&store.inputs(), "hash").unwrap();
        let server = boot.config_server.unwrap();
        assert_eq!(server.servers, ["https://kops-controller.internal.c.example.com:3988/"]);
        assert_eq!((server.ca_certificates.as_str(), server.tls_server_name.as_str()), ("", ""));
        assert_eq!(boot.config_base, None);
    }

    #[test]
    fn server_addresses_come_with_the_certificates_name() {
        let store = Store::new(AWS, "role: Bastion");
        let known = addresses(&["172.20.1.1", "2001:db8::1"]);
        let boot = boot_config(&Inputs { api_server_addresses: &known, ..store.inputs() }, "hash").unwrap();
        let server = boot.config_server.unwrap();
        assert_eq!(server.servers, ["https://172.20.1.1:3988/", "https://[2001:db8::1]:3988/"]);
        assert_eq!(server.tls_server_name, "kops-controller.internal.c.example.com");
    }
}
