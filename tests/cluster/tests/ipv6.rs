//! A cluster whose machines, pods and services have only IPv6 addresses. Each machine asks EC2 for a prefix, and our controller gives
//! the prefix to the machine's Node. The pods of the Node have addresses from this prefix.

use std::net::IpAddr;

use ipnet::Ipv6Net;
use kops_agent_tests::ec2::interface_of;
use kops_agent_tests::example_store::NODES;
use serde_json::{Value, json};

use crate::cluster::{self, Cluster, Member, Plan};
use crate::{life, workload};

pub const MACHINES: [Plan; 3] = [
    cluster::MACHINES[0],
    cluster::MACHINES[1],
    Plan { name: "node-2", id: "i-0d3a0c0ffee000007", group: NODES, number: 26 },
];
/// The address of the API server's service: the first address of the service range.
const API_SERVER: &str = "fd00:5e4f:ce::1";

/// Each machine has requested one IPv6 prefix, which is the pod range of its Node. Each machine forwards packets to its pods.
pub fn nodes_have_the_prefixes_that_they_asked_for(cluster: &Cluster) {
    let prefixes = cluster.world.ec2.prefixes();
    for member in &cluster.members {
        cluster.until(&format!("{} has a range for pods", member.id), "node", member.id, |node| {
            !node["spec"]["podCIDRs"].is_null()
        });
        let spec = cluster.get("node", member.id).unwrap()["spec"].take();
        let given = prefixes(member.id);
        assert_eq!(spec["podCIDRs"], json!(given), "{}", member.id);
        assert_eq!(spec["podCIDR"], json!(given[0]), "{}", member.id);
        assert_eq!(
            member.machine.read("/proc/sys/net/ipv6/conf/all/forwarding").trim(),
            "1",
            "{}",
            member.id
        );
    }
    each_has_asked_once(cluster);
}

/// Writes the CNI configuration of each machine: a bridge for the Node's pod range. On a real cluster without a network plugin, the
/// operator writes this file.
pub fn has_pod_network(cluster: &Cluster) {
    for member in &cluster.members {
        let node = cluster.get("node", member.id).unwrap();
        let bridge = json!({
            "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
            "ipam": {
                "type": "host-local", "ranges": [[{"subnet": node["spec"]["podCIDR"]}]],
                "routes": [{"dst": "::/0"}],
            },
        });
        let network = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]});
        member.machine.write("/etc/cni/net.d/10-pods.conflist", &network.to_string());
    }
}

/// Checks from a worker that each kubelet and the API server have certificates for the addresses to which the worker connects.
pub fn servers_are_known_by_their_addresses(cluster: &Cluster) {
    const VERIFY: &str = r#"
import socket, ssl, sys
context = ssl.create_default_context(cafile="/srv/kubernetes/ca.crt")
for server in sys.argv[1:]:
    address, port = server.split("/")
    connection = socket.create_connection((address, int(port)), timeout=10)
    context.wrap_socket(connection, server_hostname=address).close()
"#;
    let mut servers = vec![format!("{API_SERVER}/443")];
    servers.extend(cluster.members.iter().map(|member| format!("{}/10250", member.address)));
    let mut verify = vec!["python3", "-c", VERIFY];
    verify.extend(servers.iter().map(String::as_str));
    cluster.workers()[0].machine.run(&verify);
}

/// No machine, Node, pod, service or API server has an IPv4 address, except for the loopback interfaces of machines. Pods have
/// addresses from the range of their Node.
pub fn there_is_no_ipv4(cluster: &Cluster) {
    for member in &cluster.members {
        let addresses = member.machine.run(&["ip", "-4", "-oneline", "address", "show"]);
        let elsewhere: Vec<&str> =
            addresses.lines().filter(|line| line.split_whitespace().nth(1) != Some("lo")).collect();
        assert!(elsewhere.is_empty(), "{}: {elsewhere:?}", member.id);
        let node = cluster.get("node", member.id).unwrap();
        // kubelet lets the cloud controller set the addresses of its Node. This test stands in for the cloud controller. kubelet
        // itself adds no address.
        let internal = |address: &&Value| address["type"] == "InternalIP";
        let internal: Vec<&Value> = array(&node["status"]["addresses"]).iter().filter(internal).collect();
        let own = json!({"type": "InternalIP", "address": member.address.to_string()});
        assert_eq!(internal, [&own], "{}", member.id);
    }
    for pod in listed(cluster, "pods").iter().filter(|pod| !workload::is_over(pod)) {
        let name = &pod["metadata"]["name"];
        let node = pod["spec"]["nodeName"].as_str().unwrap();
        let of = cluster.members.iter().find(|member| member.id == node).unwrap();
        let addresses = addresses(&pod["status"]["podIPs"], "ip");
        assert_eq!(addresses.len(), 1, "{name}: {addresses:?}");
        if pod["spec"]["hostNetwork"] == true {
            assert_eq!(addresses, [of.address], "{name}");
        } else {
            let range = cluster.get("node", node).unwrap()["spec"]["podCIDR"].take();
            let of_node: Ipv6Net = range.as_str().unwrap().parse().unwrap();
            assert!(
                matches!(addresses[0], IpAddr::V6(address) if of_node.contains(&address)),
                "{name}: {addresses:?}, not of {range}"
            );
        }
    }
    for service in listed(cluster, "services") {
        assert_eq!(service["spec"]["ipFamilies"], json!(["IPv6"]), "{}", service["metadata"]["name"]);
    }
    let api_server = cluster.get("endpointslice", "kubernetes").unwrap();
    let at = json!([cluster.asked().address.to_string()]);
    assert_eq!(api_server["endpoints"][0]["addresses"], at, "{api_server:#}");
}

/// A worker that has an IPv6 prefix requests no second prefix when it reboots. Its pods have addresses from its prefix.
pub fn a_worker_keeps_its_prefix(cluster: &Cluster) {
    let worker: &Member = &cluster.workers()[0];
    life::reboots(cluster, worker);
    assert_eq!(worker.machine.show(life::AT_BOOT, "Result"), "success");
    each_has_asked_once(cluster);
    there_is_no_ipv4(cluster);
    workload::pods_reach_each_other(cluster);
}

fn each_has_asked_once(cluster: &Cluster) {
    let mut asked = cluster.world.ec2.assignments();
    asked.sort();
    let mut interfaces: Vec<String> = cluster.members.iter().map(|member| interface_of(member.id)).collect();
    interfaces.sort();
    assert_eq!(asked, interfaces, "the interfaces for which EC2 was asked for a prefix");
}

fn listed(cluster: &Cluster, kind: &str) -> Vec<Value> {
    let list = cluster.run_kubectl(&["get", kind, "--all-namespaces", "--output=json"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    array(&list["items"]).to_vec()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn addresses(of: &Value, field: &str) -> Vec<IpAddr> {
    array(of).iter().map(|entry| entry[field].as_str().unwrap().parse().unwrap()).collect()
}
