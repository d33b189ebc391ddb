//! Each cloud from boot to label.
//!
//! A worker without access to the store runs our agent. The agent asks its cloud's metadata service for its identity, and our
//! bootstrap server for its configuration and certificates. The server verifies it with data from that cloud's API. A real kubelet
//! joins the API server with the issued certificate, and the Node gets the labels of its group. A liar on another machine, which
//! makes the same claims, gets nothing.
//!
//! Mixed operation ([`upstream`]): our server lets in requests of kOps' own nodeup, and kOps' own kops-controller can read the
//! requests of our node. Takeover: `controller takeover --check` finds the cluster ready once its API server has the name.
//!
//! Each cloud is one row of one table and passes through all steps, so no cloud can have fewer tests than another.

mod kubelet;
pub mod machine;
pub mod network;
pub mod upstream;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use kops_agent_tests::authority::Pair;
use kops_agent_tests::example_keys::Keyset;
use machine::Machine;
use network::{CONTROL_PLANE, on_control_plane};
use serde_json::json;

use crate::bootstrap::World;
use crate::clouds::{Ground, Lot, for_each_cloud};
use crate::cluster::{Cluster, GROUP_LABEL, NODE_ROLE, eventually};
use crate::controller::Controller;
use crate::takeover;

const MACHINE: Lot = Lot { number: 1, address: Ipv4Addr::new(10, 20, 32, 20) };
/// A machine that runs kOps' own nodeup.
const UPSTREAM: Lot = Lot { number: 2, address: Ipv4Addr::new(10, 20, 32, 30) };
/// The address of a liar, which claims to be `MACHINE`.
const LIAR: Ipv4Addr = Ipv4Addr::new(10, 20, 32, 66);
const PORT: u16 = 3988;
/// The port of the stand-in for kOps' own kops-controller.
const OTHER_PORT: u16 = 3989;

macro_rules! each_cloud {
    ($($name:ident: $ground:ty),*) => {
        $(#[test]
        #[ignore = "starts an API server: tests/controller/run"]
        fn $name() {
            on_control_plane(|| boots_to_label::<$ground>());
        })*
    };
}
for_each_cloud!(each_cloud);

fn boots_to_label<G: Ground>() {
    let ground = G::start();
    let world = serving(&ground);
    for lot in [MACHINE, UPSTREAM] {
        ground.create(&world.cluster, lot);
    }
    let machine = Machine::new(&ground, &world);
    let controller = world.controller();

    let refused = machine.boot_as_liar();
    assert_eq!(refused.code, Some(1), "{}", refused.said);
    assert_eq!(machine.kubeconfig(&refused.root), None, "{}", refused.said);
    let said = &refused.said;
    assert!(requests(&controller, "refused", G::REFUSED_FOR) > 0, "{said}\n{}", controller.get("/metrics"));
    assert_eq!(requests(&controller, "granted", "Granted"), 0);

    let [configured, certified] = machine.beside(UPSTREAM, || upstream::bootstrap(&ground, &world));
    assert_eq!(configured["nodeConfig"]["nodeupConfig"], machine.config());
    for name in ["kubelet", "kubelet-server"] {
        assert!(certified["Certs"][name].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE-----\n"));
    }
    assert_eq!(requests(&controller, "granted", "Granted"), 2, "of upstream's nodeup");

    let other = (CONTROL_PLANE, OTHER_PORT).into();
    let other = upstream::KopsController::start(&authority(&world.cluster), other, machine.config());
    let refused = machine.boot_at_upstream();
    assert_eq!(refused.code, Some(1), "{}", refused.said);
    other.has_understood(&ground);
    drop(other);

    let booted = machine.boot();
    assert_eq!(booted.code, Some(0), "{}", booted.said);
    assert_eq!(requests(&controller, "granted", "Granted"), 4, "its configuration and its certificates");
    is_good_for_its_own_node_only(&ground, &world.cluster, &machine.kubeconfig(&booted.root).unwrap());
    machine.with_kubelet(&booted.root, || {
        eventually("the kubelet has joined", || {
            kubelet_version(&world.cluster, &ground.node(MACHINE)).is_some()
        });
        name_machine(&ground, &world.cluster);
        eventually("the Node is labelled", || {
            let label = |name| world.cluster.label(&ground.node(MACHINE), name);
            label(GROUP_LABEL).as_deref() == Some("nodes")
                && label("example.com/pool").as_deref() == Some("general")
        });
        assert_eq!(world.cluster.label(&ground.node(MACHINE), NODE_ROLE).as_deref(), Some(""));
    });
    takeover::becomes_ready(&world.cluster, &controller, CONTROL_PLANE);
}

/// A cluster whose controller serves machines. The machines' certificates are signed by the CA that the API server trusts.
fn serving<G: Ground>(ground: &G) -> World {
    let cluster = ground.cluster();
    World::signed_by(&authority(&cluster), SocketAddr::from((CONTROL_PLANE, PORT)), cluster, &ground.server())
}

/// The CA that the API server trusts, in kOps' format.
fn authority(cluster: &Cluster) -> Keyset {
    let Pair { certificate, private_key } = cluster.api.authority_pair();
    Keyset { name: "kubernetes-ca".to_owned(), id: 7, certificate, private_key }
}

/// The bootstrap server's count of requests with this outcome and this reason.
fn requests(controller: &Controller, outcome: &str, reason: &str) -> u32 {
    let metrics = controller.get("/metrics");
    let name = format!(r#"kops_agent_bootstrap_requests_total{{outcome="{outcome}",reason="{reason}"}} "#);
    let count = metrics.lines().find_map(|line| line.strip_prefix(&name));
    count.map_or(0, |count| count.parse().unwrap())
}

/// Checks that the API server treats the owner of this certificate as a kubelet. Such a kubelet may create only its own Node, and must not
/// set the Node's group.
fn is_good_for_its_own_node_only<G: Ground>(ground: &G, cluster: &Cluster, kubeconfig: &Path) {
    let create = |name: &str, group: &str| {
        let labels = json!({"kubernetes.io/hostname": name, GROUP_LABEL: group});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        let created = cluster.api.kubectl_by(kubeconfig, &["create", "-f", "-"], &node.to_string());
        created.unwrap_err().to_string()
    };
    let refused = create("another", "nodes");
    assert!(refused.contains("is not allowed to modify node"), "{refused}");
    let refused = create(&ground.node(MACHINE), "control-plane");
    assert!(refused.contains("is not allowed to set the following labels"), "{refused}");
}

/// The version of the kubelet that has created a Node. `None` if the Node does not exist.
fn kubelet_version(cluster: &Cluster, node: &str) -> Option<String> {
    let version = ["get", "node", node, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}"];
    cluster.api.kubectl(&version, "").ok().filter(|version| version.starts_with('v'))
}

/// Sets the provider ID of a new Node, as the cloud's controller does.
fn name_machine<G: Ground>(ground: &G, cluster: &Cluster) {
    if !ground.provider_id(MACHINE).is_empty() {
        let patch = json!({"spec": {"providerID": ground.provider_id(MACHINE)}});
        cluster.patch_node(&ground.node(MACHINE), &patch.to_string());
    }
}
