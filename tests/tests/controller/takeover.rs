//! `controller takeover --check` against a real API server.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use kops_agent_tests::dns_controller;
use serde_json::{Value, json};

use crate::bootstrap::{WithSts, on_aws};
use crate::cluster::{CLUSTER, Cluster, KOPS_VERSION, REGION, id, path_of};
use crate::controller::Controller;

/// Creates a pod with this label `k8s-app`, such as a static pod's mirror pod. `names` are the DNS names that the pod publishes.
fn put_pod(cluster: &Cluster, name: &str, app: &str, node: &str, names: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "kube-system", "labels": {"k8s-app": app},
                     "annotations": {"dns.alpha.kubernetes.io/internal": names}},
        "spec": {"nodeName": node, "hostNetwork": true, "containers": [{"name": app, "image": "none"}]}
    });
    cluster.api.kubectl(&["apply", "-f", "-"], &pod.to_string()).unwrap();
}

/// Sets the address of a control-plane machine's Node.
fn report_address(cluster: &Cluster, node: &str, address: &str) {
    cluster.patch_status(node, &json!({"addresses": [{"type": "InternalIP", "address": address}]}));
}

/// Sets the annotation by which a control-plane node reports that it runs kops-agent's controller as a service.
fn report_controller(cluster: &Cluster, node: &str) {
    cluster.annotate_node(node, "kops-agent/controller", "running");
}

/// Checks that a cluster on any cloud becomes ready for a takeover from kops-controller. `controller` serves the machines of the cluster
/// at this address.
pub fn becomes_ready(cluster: &Cluster, controller: &Controller, address: Ipv4Addr) {
    let (node, api) = ("the-control-plane", format!("api.internal.{CLUSTER}"));
    cluster.create_node(node, None);
    cluster.label_node(node, "node-role.kubernetes.io/control-plane", "");
    report_address(cluster, node, &address.to_string());
    report_controller(cluster, node);
    let bootstrap = format!("kops-controller.internal.{CLUSTER}");
    put_pod(cluster, "kops-controller-1", "kops-controller", node, &bootstrap);
    put_pod(cluster, "kube-apiserver-1", "kube-apiserver", node, &api);
    let health = ["--health", controller.address()];
    let (code, said) = cluster.check_takeover(&health);
    let is_ready = |line: &&str| line.contains(" ready ");
    let not_ready: Vec<&str> = said.lines().filter(|line| line.contains("NOT READY")).collect();
    assert!(code == Some(4) && not_ready.len() == 1 && not_ready[0].starts_with("names"), "{said}");
    put_pod(cluster, "kube-apiserver-1", "kube-apiserver", node, &format!("{api},{bootstrap}"));
    let (code, said) = cluster.check_takeover(&health);
    assert_eq!((code, said.lines().filter(is_ready).count()), (Some(0), 8), "{said}");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_takeover_needs_the_name_the_port_and_the_rights() {
    let world = WithSts::start();
    let cluster = &world.cluster;
    let bootstrap = format!("kops-controller.internal.{CLUSTER}");
    let api = format!("api.internal.{CLUSTER}");
    for number in 1..=2 {
        let node = id(number);
        cluster.create_node(&node, Some(&node));
        cluster.label_node(&node, "node-role.kubernetes.io/control-plane", "");
        report_address(cluster, &node, "127.0.0.1");
        put_pod(cluster, &format!("kube-apiserver-{node}"), "kube-apiserver", &node, &api);
        put_pod(cluster, &format!("kops-controller-{number}"), "kops-controller", &node, &bootstrap);
    }
    let both = format!("{api},{bootstrap}");
    put_pod(cluster, &format!("kube-apiserver-{}", id(1)), "kube-apiserver", &id(1), &both);
    let (code, said) = cluster.check_takeover(&["--health", "127.0.0.1:1"]);
    assert_eq!(code, Some(4), "{said}");
    let line = |said: &str, what: &str| said.lines().find(|line| line.starts_with(what)).unwrap().to_owned();
    let names = line(&said, "names");
    assert!(names.contains("NOT READY") && names.contains(&id(2)) && !names.contains(&id(1)), "{said}");
    assert!(line(&said, "service").contains("NOT READY"), "{said}");
    let servers = line(&said, "servers");
    assert!(servers.contains("NOT READY") && servers.contains(&id(1)) && servers.contains(&id(2)), "{said}");
    for what in ["kops", "scope", "rights", "lease", "port"] {
        assert!(line(&said, what).contains(" ready "), "{said}");
    }
    assert!(line(&said, "port").contains("is free"), "{said}");

    put_pod(cluster, &format!("kube-apiserver-{}", id(2)), "kube-apiserver", &id(2), &both);
    let controller = world.controller();
    let health = ["--health", controller.address()];
    // A server listens on each of the two machines. The check does not accept a server that could be kops-controller, because a
    // takeover removes kops-controller.
    let (code, said) = cluster.check_takeover(&health);
    let servers = line(&said, "servers");
    assert!(code == Some(4) && servers.contains("nor a pod shows that kops-agent runs there"), "{said}");
    assert!(servers.contains(&id(1)) && servers.contains(&id(2)), "{said}");
    report_controller(cluster, &id(1));
    let (code, said) = cluster.check_takeover(&health);
    let servers = line(&said, "servers");
    assert!(code == Some(4) && !servers.contains(&id(1)) && servers.contains(&id(2)), "{said}");
    put_pod(cluster, "kops-agent-controller-2", "kops-agent-controller", &id(2), &bootstrap);
    let (code, said) = cluster.check_takeover(&health);
    assert_eq!(code, Some(0), "{said}");
    assert!(line(&said, "port").contains("kops-agent listens"), "{said}");
    let (code, said) = cluster.check_takeover(&["--health", controller.address(), "-o", "json"]);
    assert_eq!((code, said.matches(r#""state": "ready""#).count()), (Some(0), 8), "{said}");

    // A control-plane machine was replaced. No server listens on the new machine.
    report_address(cluster, &id(2), "127.0.0.9");
    let (code, said) = cluster.check_takeover(&health);
    let servers = line(&said, "servers");
    assert!(code == Some(4) && servers.contains(&format!("{} (127.0.0.9:", id(2))), "{said}");
    assert!(!servers.contains(&id(1)), "{said}");
    report_address(cluster, &id(2), "127.0.0.1");

    // Each entry has the kOps version in the store, the state that the check reports, and a part of the message.
    for (version, state, told) in [
        (Some("1.36.2"), "ready", "kOps 1.36.2, told by kops-version.txt"),
        (Some("1.40.0"), "unknown", "kOps 1.40.0, told by kops-version.txt"),
        (None, "unknown", "the exact version is unknown"),
        (Some("1.33.1"), "NOT READY", "kops-agent supports kOps 1.34 and newer"),
    ] {
        let file = cluster.store().join(KOPS_VERSION);
        match version {
            Some(version) => fs::write(&file, version).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let (_, said) = cluster.check_takeover(&health);
        let kops = line(&said, "kops");
        assert!(kops.contains(&format!(" {state} ")) && kops.contains(told), "{version:?}: {said}");
    }
    fs::write(cluster.store().join(KOPS_VERSION), "1.37.0-alpha.1").unwrap();

    // If the check cannot read a fact, it reports `unknown` and not `NOT READY`.
    let (code, said) = cluster.check_takeover_with(Path::new("/none"), &health);
    assert_eq!(code, Some(1), "{said}");
    assert!(line(&said, "names").contains("unknown") && said.contains("--admin-kubeconfig"), "{said}");

    // This is the state of a kOps cluster before any manifest of kops-agent is applied.
    cluster.kubectl(&["-n", "kops-agent", "delete", "rolebinding", "kops-agent-pacing"]);
    let (code, said) = cluster.check_takeover(&health);
    assert_eq!(code, Some(4), "{said}");
    let rights = line(&said, "rights");
    for part in ["NOT READY", "list leases", "update leases", "namespace kops-agent", "rbac.yaml"] {
        assert!(rights.contains(part), "no {part:?} in {said}");
    }
    assert!(!rights.contains("patch nodes"), "{said}");

    cluster.kubectl(&["delete", "clusterrolebinding", "kops-controller"]);
    let (code, said) = cluster.check_takeover(&health);
    assert_eq!(code, Some(4), "{said}");
    assert!(line(&said, "rights").contains("patch nodes") && !said.contains("create events"), "{said}");

    world.configure(&on_aws(REGION), &json!({"capi": {"enabled": true}}));
    let (_, said) = cluster.check_takeover(&health);
    assert!(line(&said, "scope").contains("capi.enabled"), "{said}");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn the_last_server_does_not_leave() {
    let mut world = WithSts::start();
    let cluster = &world.cluster;
    for (number, address) in [(1, "127.0.0.1"), (2, "127.0.0.9")] {
        cluster.create_node(&id(number), Some(&id(number)));
        cluster.label_node(&id(number), "node-role.kubernetes.io/control-plane", "");
        report_address(cluster, &id(number), address);
    }
    let controller = world.controller();
    // `converge` runs this check if KOPS_AGENT_CONTROLLER=false is set. The check decides whether `converge` ends the server.
    let check = |cluster: &Cluster, machine: usize| {
        let kubelet =
            cluster.api.kubeconfig(&format!("system:node:{}", id(machine)), &["system:nodes"]).unwrap();
        let kubelet = kubelet.to_str().unwrap();
        cluster.check_takeover(&["--back", "--kubelet-kubeconfig", kubelet])
    };
    let (code, said) = check(cluster, 2);
    assert!(code == Some(0) && said.contains(&format!("a bootstrap server listens on {}", id(1))), "{said}");
    // No server listens on machine 2, so the server on machine 1 is the last one. This server must not end, although kops-controller's pod
    // runs on machine 1.
    put_pod(cluster, "kops-controller-1", "kops-controller", &id(1), "");
    let (code, said) = check(cluster, 1);
    assert!(code == Some(4) && said.contains(&format!("{} (127.0.0.9:", id(2))), "{said}");

    // Without Node 2, machine 1 is the only control plane. The server on machine 1 may end, because kops-controller's pod on this machine
    // waits for the port.
    cluster.kubectl(&["delete", "node", &id(2)]);
    let (code, said) = check(cluster, 1);
    assert!(code == Some(0) && said.contains("waits here for the port"), "{said}");
    cluster.kubectl(&[
        "-n",
        "kube-system",
        "delete",
        "pod",
        "kops-controller-1",
        "--force",
        "--grace-period=0",
    ]);
    let (code, said) = check(cluster, 1);
    assert!(code == Some(4) && said.contains("this is the only control plane"), "{said}");

    drop(controller);
    world.world.cluster.api.kill_api_server();
    let (code, said) = check(&world.cluster, 1);
    assert!(code == Some(1) && said.contains("unknown"), "{said}");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn the_installation_page_gives_all_rights() {
    let cluster = Cluster::start_without_rights();
    cluster.configure(Some(&json!({
        "Listen": "127.0.0.1:0", "provider": on_aws(REGION), "pki": {"MaxTimeSkew": 300},
        "serverKeyPath": "/none", "serverCertificatePath": "/none", "caBasePath": "/none",
        "signingCAs": ["kubernetes-ca"], "certNames": ["kubelet"]
    })));
    let rights = || {
        let (_, said) = cluster.check_takeover(&["--health", "127.0.0.1:1"]);
        said.lines().find(|line| line.starts_with("rights")).expect(&said).to_owned()
    };
    // The rights that a line reports as missing: the rights of kOps' controller, the rights for slots, and the right to list enrolled
    // machines.
    let missing =
        |line: &str| ["patch nodes", "namespace kops-agent", "list hosts"].map(|part| line.contains(part));
    let none = rights();
    assert_eq!(missing(&none), [true; 3], "{none}");

    let page = fs::read_to_string(path_of("docs/install/control-plane.md")).unwrap();
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let [rbac, hosts, pods] = blocks.filter(|block| block.contains("kubectl")).collect::<Vec<_>>()[..] else {
        panic!("the page has other commands of kubectl's than the rights and the pods: {page}")
    };
    cluster.type_in(rbac);
    let most = rights();
    assert_eq!(missing(&most), [false, false, true], "{most}");
    cluster.type_in(hosts);
    let all = rights();
    assert!(all.contains(" ready "), "{all}");

    cluster.type_in(pods);
    let name = "jsonpath={.spec.template.metadata.annotations}";
    let names =
        cluster.kubectl(&["-n", "kube-system", "get", "daemonset", "kops-agent-controller", "-o", name]);
    assert!(names.contains(&format!("kops-controller.internal.{CLUSTER}")), "{names}");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn without_an_api_server_the_state_is_unknown() {
    let mut cluster = Cluster::start();
    cluster.api.kill_api_server();
    let (code, said) = cluster.check_takeover(&["--health", "127.0.0.1:1"]);
    assert_eq!(code, Some(4), "the service does not run: {said}");
    assert!(said.lines().any(|line| line.starts_with("rights") && line.contains("unknown")), "{said}");
}

/// The control plane of a cluster with DNS. Its machines change to kops-agent and back, one by one, while dns-controller runs.
struct Way<'a> {
    cluster: &'a Cluster,
    name: String,
}

impl Way<'_> {
    const MACHINES: [usize; 2] = [1, 2];

    fn address(machine: usize) -> String {
        format!("10.0.0.{machine}")
    }

    /// The addresses that dns-controller publishes under the bootstrap name, if the pods of this app are left out.
    fn published_without(&self, app: &str) -> BTreeSet<String> {
        let selector = format!("k8s-app!={app}");
        let pods = self.cluster.kubectl(&["-n", "kube-system", "get", "pods", "-l", &selector, "-o", "json"]);
        let pods: Value = serde_json::from_str(&pods).unwrap();
        dns_controller::records(&pods).remove(&self.name).unwrap_or_default()
    }

    #[track_caller]
    fn all_are_published(&self, when: &str) {
        let all: BTreeSet<String> = Way::MACHINES.into_iter().map(Way::address).collect();
        assert_eq!(self.published_without("none"), all, "{when}");
    }

    /// Compares the takeover check with the DNS record. The check must report the names as ready exactly if the record stays complete
    /// without kops-controller's pods.
    #[track_caller]
    fn check_agrees(&self) {
        let is_kept = self.published_without("kops-controller").len() == Way::MACHINES.len();
        let (_, said) = self.cluster.check_takeover(&["--health", "127.0.0.1:1"]);
        let names = said.lines().find(|line| line.starts_with("names")).unwrap();
        assert_eq!(!names.contains("NOT READY"), is_kept, "{said}");
    }

    fn delete_pod(&self, pod: &str) {
        self.cluster.kubectl(&["-n", "kube-system", "delete", "pod", pod, "--force", "--grace-period=0"]);
        self.all_are_published(&format!("{pod} has ended"));
    }

    fn start_pod(&self, pod: &str, app: &str, machine: usize, names: &str) {
        put_pod(self.cluster, pod, app, &id(machine), names);
        let status = json!({"status": {"podIP": Way::address(machine)}}).to_string();
        let patch = ["patch", "pod", pod, "--subresource=status", "--type=merge", "-p", &status];
        self.cluster.kubectl(&[&["-n", "kube-system"][..], &patch].concat());
    }

    /// Replaces the API server's pod. After a change of the manifest, a kubelet creates a new mirror pod.
    fn restart_api_server(&self, machine: usize, names: &str) {
        let pod = format!("kube-apiserver-{}", id(machine));
        self.delete_pod(&pod);
        self.start_pod(&pod, "kube-apiserver", machine, names);
        self.all_are_published(&format!("{pod} has been started again"));
        self.check_agrees();
    }
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn dns_controllers_record_is_complete_at_every_step_there_and_back() {
    let world = WithSts::start();
    let name = format!("kops-controller.internal.{CLUSTER}");
    let way = Way { cluster: &world.cluster, name: name.clone() };
    let (api, upstream) = (format!("api.internal.{CLUSTER}"), |machine| format!("kops-controller-{machine}"));
    let both = format!("{api},{name}");
    for machine in Way::MACHINES {
        let node = id(machine);
        way.cluster.create_node(&node, Some(&node));
        way.cluster.label_node(&node, "node-role.kubernetes.io/control-plane", "");
        way.start_pod(&format!("kube-apiserver-{node}"), "kube-apiserver", machine, &api);
        way.start_pod(&upstream(machine), "kops-controller", machine, &name);
    }
    way.all_are_published("kOps' own kops-controller runs");
    assert_eq!(way.published_without("kops-controller"), BTreeSet::new(), "nothing else would keep the name");
    way.check_agrees();

    // These are steps 2 and 4 of docs/take-over.md.
    for machine in Way::MACHINES {
        way.restart_api_server(machine, &both);
    }
    for machine in Way::MACHINES {
        way.delete_pod(&upstream(machine));
    }
    way.check_agrees();

    // These are steps 1 and 2 of the way back in docs/take-over.md.
    for machine in Way::MACHINES {
        way.start_pod(&upstream(machine), "kops-controller", machine, &name);
        way.all_are_published("kops-controller is back");
    }
    for machine in Way::MACHINES {
        way.restart_api_server(machine, &api);
    }
    assert_eq!(way.published_without("kops-controller"), BTreeSet::new(), "kops-agent has left it all");
}
