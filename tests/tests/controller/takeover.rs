//! `controller takeover --check` against a real API server.

use std::path::Path;

use serde_json::json;

use crate::bootstrap::{WithSts, on_aws};
use crate::cluster::{CLUSTER, Cluster, Controller, REGION, id};

/// A static pod as a kubelet mirrors it, or one of kops-controller's.
fn put_pod(cluster: &Cluster, name: &str, app: &str, node: &str, names: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "kube-system", "labels": {"k8s-app": app},
                     "annotations": {"dns.alpha.kubernetes.io/internal": names}},
        "spec": {"nodeName": node, "hostNetwork": true, "containers": [{"name": app, "image": "none"}]}
    });
    cluster.api.kubectl(&["apply", "-f", "-"], &pod.to_string()).unwrap();
}

/// Has a cluster taken over from kops-controller, on whatever cloud it is, whose machines this controller serves.
pub fn becomes_ready(cluster: &Cluster, controller: &Controller) {
    let (node, api) = ("the-control-plane", format!("api.internal.{CLUSTER}"));
    cluster.create_node(node, None);
    cluster.kubectl(&["label", "node", node, "node-role.kubernetes.io/control-plane="]);
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
    assert_eq!((code, said.lines().filter(is_ready).count()), (Some(0), 6), "{said}");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_takeover_is_ready_once_the_name_the_port_and_the_rights_are() {
    let world = WithSts::start();
    let cluster = &world.cluster;
    let bootstrap = format!("kops-controller.internal.{CLUSTER}");
    let api = format!("api.internal.{CLUSTER}");
    for number in 1..=2 {
        let node = id(number);
        cluster.create_node(&node, Some(&node));
        cluster.kubectl(&["label", "node", &node, "node-role.kubernetes.io/control-plane="]);
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
    for what in ["scope", "rights", "lease", "port"] {
        assert!(line(&said, what).contains(" ready "), "{said}");
    }
    assert!(line(&said, "port").contains("is free"), "{said}");

    put_pod(cluster, &format!("kube-apiserver-{}", id(2)), "kube-apiserver", &id(2), &both);
    let controller = world.controller();
    let health = ["--health", controller.address()];
    let (code, said) = cluster.check_takeover(&health);
    assert_eq!(code, Some(0), "{said}");
    assert!(line(&said, "port").contains("kops-agent listens"), "{said}");
    let (code, said) = cluster.check_takeover(&["--health", controller.address(), "-o", "json"]);
    assert_eq!((code, said.matches(r#""state": "ready""#).count()), (Some(0), 6), "{said}");

    // What cannot be told is not taken for what is not so.
    let (code, said) = cluster.check_takeover_with(Path::new("/none"), &health);
    assert_eq!(code, Some(1), "{said}");
    assert!(line(&said, "names").contains("unknown") && said.contains("--admin-kubeconfig"), "{said}");

    // As a cluster of kOps' is where nothing of kops-agent's was applied.
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
fn an_api_server_that_is_gone_leaves_it_unknown() {
    let mut cluster = Cluster::start();
    cluster.api.kill_api_server();
    let (code, said) = cluster.check_takeover(&["--health", "127.0.0.1:1"]);
    assert_eq!(code, Some(4), "the service does not run: {said}");
    assert!(said.lines().any(|line| line.starts_with("rights") && line.contains("unknown")), "{said}");
}
