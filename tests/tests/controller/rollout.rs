//! Rollouts on a real API server. `fleet rollout` starts a rollout, the leading controller writes orders, and nodes answer like
//! `fleet follow`. A stand-in for the node's run applies the ordered configuration, or fails.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::cluster::{Cluster, GROUP_LABEL, eventually, plain_agent};

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
const ORDER: &str = "kops-agent/follow";
const OUTCOME: &str = "kops-agent/followed";
const CONDITION: &str = "KopsConfigured";
const OLD: &str = "b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQ=";

/// A cluster with one control plane and groups of workers, all on an old configuration.
struct Fleet {
    cluster: Cluster,
    admin: PathBuf,
}

impl Fleet {
    fn start(groups: &[(&str, usize)]) -> Fleet {
        let cluster = Cluster::start();
        cluster.apply("control-plane", "masters", "");
        let admin = cluster.api.kubeconfig("admin", &["system:masters"]).unwrap();
        let fleet = Fleet { cluster, admin };
        fleet.create("masters-0", "masters");
        fleet.cluster.kubectl(&["label", "node", "masters-0", &format!("{CONTROL_PLANE}=")]);
        for (group, nodes) in groups {
            fleet.cluster.apply("node", group, "");
            for number in 0..*nodes {
                fleet.create(&format!("{group}-{number}"), group);
            }
        }
        fleet
    }

    fn create(&self, node: &str, group: &str) {
        self.cluster.create_node(node, None);
        self.cluster.kubectl(&["label", "node", node, &format!("{GROUP_LABEL}={group}")]);
        self.cluster.report(node);
        self.runs(node, OLD);
    }

    /// The node reports that it is Ready and runs a configuration.
    fn runs(&self, node: &str, hash: &str) {
        let conditions = json!([
            {"type": "Ready", "status": "True", "reason": "KubeletReady"},
            {"type": CONDITION, "status": "True", "reason": "Converged", "message": format!("configuration {hash}")},
        ]);
        let patch = json!({"status": {"conditions": conditions}}).to_string();
        self.cluster.kubectl(&[
            "patch",
            "node",
            node,
            "--subresource=status",
            "--type=strategic",
            "-p",
            &patch,
        ]);
    }

    /// The hash of a group's current configuration.
    fn current(&self, role: &str, group: &str) -> String {
        let file = self.cluster.store().join(format!("igconfig/{role}/{group}/nodeupconfig.yaml"));
        STANDARD.encode(Sha256::digest(fs::read(file).unwrap()))
    }

    fn order(&self, node: &str) -> Option<Value> {
        let path = format!("jsonpath={{.metadata.annotations.{}}}", ORDER.replace('.', "\\."));
        let order = self.cluster.kubectl(&["get", "node", node, "-o", &path]);
        serde_json::from_str(&order).ok()
    }

    /// The node carries out its order, as `fleet follow` does, and reports success or this problem.
    fn answer(&self, node: &str, problem: &str) {
        let order = self.order(node).unwrap();
        if problem.is_empty() {
            self.runs(node, order["hash"].as_str().unwrap());
        }
        let outcome = json!({
            "rollout": order["rollout"], "attempt": order["attempt"], "hash": order["hash"], "problem": problem,
        });
        self.cluster.kubectl(&["annotate", "--overwrite", "node", node, &format!("{OUTCOME}={outcome}")]);
    }

    fn rollout(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = plain_agent();
        command.args(["fleet", "rollout"]).args(arguments).arg("--kubeconfig").arg(&self.admin);
        ended(&mut command)
    }

    fn status(&self) -> Value {
        let (_, said) = self.rollout(&["status", "-o", "json"]);
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    /// Waits until exactly these nodes are at work.
    fn at_work(&self, nodes: &[&str]) {
        eventually(&format!("{nodes:?} are at work"), || {
            let status = self.status();
            let groups = status["status"]["groups"].as_object();
            let updating: Vec<&str> = groups
                .into_iter()
                .flat_map(|groups| groups.values())
                .flat_map(|group| group["updating"].as_array().unwrap())
                .map(|node| node.as_str().unwrap())
                .collect();
            updating == nodes && nodes.iter().all(|node| self.order(node).is_some())
        });
    }

    fn phase(&self) -> String {
        self.status()["status"]["phase"].as_str().unwrap_or_default().to_owned()
    }
}

fn ended(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
    (output.status.code(), said)
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn nodes_take_their_turns_and_a_failure_stops_a_rollout() {
    let fleet = Fleet::start(&[("a", 3), ("b", 1)]);
    let (code, said) = fleet.rollout(&["status"]);
    assert!(code == Some(1) && said.contains("there is no rollout"), "{said}");
    let (code, said) = fleet.rollout(&["start", "--instance-group", "c"]);
    assert!(code == Some(2) && said.contains("the groups of the Nodes are: a, b, masters"), "{said}");

    let controller = fleet.cluster.controller();
    let (code, said) = fleet.rollout(&["start", "--canary", "1"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = fleet.rollout(&["start"]);
    assert!(code == Some(1) && said.contains("is not over"), "{said}");

    fleet.at_work(&["masters-0"]);
    let order = fleet.order("masters-0").unwrap();
    assert_eq!(order["hash"], fleet.current("control-plane", "masters"));
    assert_eq!((&order["drain"], &order["maxUnavailable"]), (&json!("auto"), &json!(1)));
    assert_eq!(fleet.order("a-0"), None);
    fleet.answer("masters-0", "");

    fleet.at_work(&["a-0", "b-0"]);
    fleet.answer("b-0", "");
    fleet.answer("a-0", "kubelet is dead");
    eventually("the rollout stops", || fleet.phase() == "stopped");
    let (code, said) = fleet.rollout(&["status", "--watch"]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("a-0 failed: kubelet is dead"), "{said}");
    assert!(fleet.cluster.reasons("a-0").contains("RolloutFailed"), "{}", fleet.cluster.reasons("a-0"));
    let metric = r#"kops_agent_rollout_nodes{instance_group="a",state="failed"}"#;
    eventually("the metric counts it", || controller.get("/metrics").contains(&format!("{metric} 1")));
    assert_eq!(fleet.order("a-1"), None);

    // The operator resumes, and another controller takes over.
    controller.terminate();
    let (code, said) = fleet.rollout(&["resume"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = fleet.rollout(&["status"]);
    assert!(code == Some(4) && said.contains("resumed; no controller has read that yet"), "{said}");
    assert_eq!(fleet.status()["status"], Value::Null, "the status of the first attempt answers no longer");
    let controller = fleet.cluster.controller();
    fleet.at_work(&["a-0"]);
    assert_eq!(fleet.order("a-0").unwrap()["attempt"], 2);
    fleet.answer("a-0", "");
    fleet.at_work(&["a-1"]);
    let (code, said) = fleet.rollout(&["pause"]);
    assert_eq!(code, Some(0), "{said}");
    fleet.answer("a-1", "");
    eventually("the rollout is paused", || fleet.phase() == "paused");
    assert_eq!(fleet.order("a-2"), None);
    fleet.rollout(&["resume"]);
    fleet.at_work(&["a-2"]);
    fleet.answer("a-2", "");
    eventually("the rollout is done", || fleet.phase() == "done");
    let (code, said) = fleet.rollout(&["status"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = fleet.rollout(&["abort"]);
    assert!(code == Some(1) && said.contains("is done"), "{said}");
    drop(controller);
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn an_aborted_rollout_takes_its_orders_back_and_none_begins_without_a_controller() {
    let fleet = Fleet::start(&[("a", 2)]);
    fleet.runs("masters-0", &fleet.current("control-plane", "masters"));
    fleet.cluster.create_node("stray", None);
    let (code, said) = fleet.rollout(&["start"]);
    assert!(code == Some(1) && said.contains("no controller has begun the rollout"), "{said}");
    let (_, said) = fleet.rollout(&["status"]);
    assert!(said.contains("not begun: no controller leads it"), "{said}");
    let _controller = fleet.cluster.controller();
    fleet.at_work(&["a-0"]);
    let (_, said) = fleet.rollout(&["status"]);
    assert!(said.contains("so without an order: stray"), "{said}");
    let (code, said) = fleet.rollout(&["abort"]);
    assert_eq!(code, Some(0), "{said}");
    eventually("the order is taken back", || fleet.order("a-0").is_none());
    assert_eq!(fleet.phase(), "aborted");
    let (code, said) = fleet.rollout(&["resume"]);
    assert!(code == Some(1) && said.contains("was aborted"), "{said}");
}
