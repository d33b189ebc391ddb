//! A superseded node plans the change to the next configuration of its group and reports it in its Node, and `fleet plan`
//! shows it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::{Command, Stdio};

use kops_agent_tests::example_store::NODES;
use serde_json::{Value, json};

use crate::example::api_server::ApiServer;
use crate::example::worker::NODE;
use crate::example::{self, Ended, Machine};
use crate::following::{json_status, more_pods, update};
use crate::superseded::{pinned, read};

const FAILED: i32 = 1;
const KUBECONFIG: &str = "var/lib/kubelet/kubeconfig";

/// A Node of the group `nodes`, as kubelet registers a Node.
fn registered(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "spec": {},
        "metadata": {"name": name, "labels": {"kops.k8s.io/instancegroup": "nodes"}, "annotations": {}},
        "status": {"nodeInfo": {"kubeletVersion": "v1.30.0", "containerRuntimeVersion": "containerd://2.0.0"}},
    })
}

/// Makes kubelet's kubeconfig point to `server`.
pub(crate) fn point_to(machine: &Machine, server: &ApiServer) {
    let mut kubeconfig: serde_yaml::Value = serde_yaml::from_str(&read(machine, KUBECONFIG)).unwrap();
    kubeconfig["clusters"][0]["cluster"] = serde_yaml::to_value(json!({"server": server.url})).unwrap();
    fs::write(machine.root().join(KUBECONFIG), serde_yaml::to_string(&kubeconfig).unwrap()).unwrap();
}

/// Reports the machine's state to `server`, with kubelet's certificate.
fn tell(machine: &Machine, server: &ApiServer) {
    let before = read(machine, KUBECONFIG);
    point_to(machine, server);
    let mut agent = Command::new(example::agent());
    agent.env_clear().stdin(Stdio::null()).args(["fleet", "tell", "--root"]).arg(machine.root());
    Ended::from_command(&mut agent).with(0, &[]);
    fs::write(machine.root().join(KUBECONFIG), before).unwrap();
}

fn fleet(server: &ApiServer, arguments: &[&str]) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let mut agent = Command::new(example::agent());
    agent.env_clear().arg("fleet").args(arguments).arg("--kubeconfig").arg(server.kubeconfig(folder.path()));
    Ended::from_command(agent.stdin(Stdio::null()))
}

/// The `items` in the JSON output of a `fleet` command.
fn items(server: &ApiServer, command: &str) -> Value {
    let ended = fleet(server, &[command, "-o", "json"]);
    serde_json::from_str::<Value>(&ended.stdout).unwrap()["items"].clone()
}

#[test]
fn a_superseded_node_tells_the_change_that_waits_for_it_until_it_follows() {
    let (node, path) = pinned(NODES, "node");
    let before = fs::read_to_string(node.cluster.store.cluster_folder().join(&path)).unwrap();
    let server = ApiServer::with_nodes(vec![registered(NODE)]);
    tell(&node, &server);
    let groups = items(&server, "plan");
    assert_eq!((&groups[0]["current"], &groups[0]["next"]), (&json!(1), &Value::Null), "{groups:#}");

    let files = node.files();
    let next = more_pods(&node, &path);
    // `verify` without `--renew` plans no next change, because its flags may name another store.
    node.run("verify", &[]).with(0, &[]);
    assert_eq!(json_status(&node)["superseded"]["next"], Value::Null);
    node.run("verify", &["--renew"]).with(0, &[]);
    assert_eq!(node.files(), files, "nothing changes");
    tell(&node, &server);
    let group = items(&server, "plan")[0].clone();
    assert_eq!((&group["superseded"], &group["from"]), (&json!(1), &json!(NODE)), "{group:#}");
    assert_eq!(group["next"]["hash"], next.as_str());
    let planned = &group["next"]["outcome"]["planned"];
    assert_eq!(planned["restarts"], json!(["kubelet.service"]), "{group:#}");
    assert_eq!((&planned["takesSlot"], &planned["drains"]), (&json!(true), &json!(true)), "{group:#}");
    let shown = fleet(&server, &["plan", "--instance-group", "nodes"]);
    shown.with(0, &[]);
    assert!(shown.stdout.contains("kubelet.service"), "{shown:#?}");
    fleet(&server, &["plan", "--instance-group", "others"])
        .with(FAILED, &["no Node has the instance group \"others\"; the groups of the Nodes are: nodes"]);

    // If a node cannot plan its next change, its runs still succeed.
    update(&node, &path, "reboot");
    node.run("verify", &["--renew"]).with(0, &["cannot plan the change"]);
    tell(&node, &server);
    let shown = fleet(&server, &["plan"]);
    assert!(
        shown.stdout.contains("cannot plan the change: ") && shown.stdout.contains("reboot"),
        "{shown:#?}"
    );

    // With the old configuration back in the store, the node is no longer superseded.
    let file = node.cluster.store.cluster_folder().join(&path);
    fs::write(&file, &before).unwrap();
    node.run("verify", &["--renew"]).with(0, &[]);
    tell(&node, &server);
    let group = items(&server, "plan")[0].clone();
    assert_eq!((&group["current"], &group["next"]), (&json!(1), &Value::Null), "{group:#}");

    update(&node, &path, "net.core.somaxconn = 4321");
    node.run("converge", &[]).with(0, &[]);
    assert!(json_status(&node)["superseded"]["next"]["outcome"]["planned"].is_object());
    assert_eq!(items(&server, "status")[0]["followedFrom"], Value::Null);
    node.run("converge", &["--follow"]).with(0, &[]);
    tell(&node, &server);
    let group = items(&server, "plan")[0].clone();
    assert_eq!((&group["current"], &group["next"]), (&json!(1), &Value::Null), "{group:#}");
    assert_eq!(items(&server, "status")[0]["followedFrom"], json_status(&node)["followedFrom"]);
    assert!(fleet(&server, &["status"]).stdout.contains("  yes  "));
}

#[test]
fn no_text_of_a_node_breaks_the_table() {
    let lie = "\u{1b}[2J\n".repeat(1000);
    let liar = |name: &str, next: &str| {
        let mut node = registered(name);
        node["metadata"]["annotations"] = json!({"kops-agent/next": next});
        node["status"]["conditions"] = json!([{
            "type": "KopsConfigured", "status": "True", "reason": lie, "lastHeartbeatTime": "2999-01-01T00:00:00Z",
            "message": format!("configuration a= since {lie}; superseded by b= since {lie}; {lie}"),
        }]);
        node
    };
    let server = ApiServer::with_nodes(vec![liar("i-1", &lie), liar("i-2", "{\"schemaVersion\": 1}")]);
    for arguments in [&["plan"][..], &["plan", "-o", "json"]] {
        let ended = fleet(&server, arguments);
        ended.with(0, &[]);
        assert!(!ended.stdout.contains('\u{1b}'), "{ended:#?}");
    }
    let groups = items(&server, "plan");
    assert_eq!((&groups[0]["unknown"], &groups[0]["next"]), (&json!(2), &Value::Null), "{groups:#}");
}
