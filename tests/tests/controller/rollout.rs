//! Rollouts on a real API server. `fleet rollout` starts a rollout, the leading controller writes orders, and nodes answer like
//! `fleet follow`. A stand-in for the node's run applies the ordered configuration, or fails.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::cluster::{Cluster, GROUP_LABEL, eventually, path_of, plain_agent};
use crate::fleet_watch::Watching;

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
pub const ORDER: &str = "kops-agent/follow";
pub const OUTCOME: &str = "kops-agent/followed";
const AUTHORITIES: &str = "kops-agent/authorities";
const CONDITION: &str = "KopsConfigured";
/// A policy that rolls out changes of group `a` only.
const AUTOMATIC: &str = "cluster: {follow: automatic, checkPodsAfter: 0}\ngroups: {b: {follow: manual}, masters: {follow: manual}}\n";
pub const OLD: &str = "b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQ=";

/// A cluster with one control plane and groups of workers. All Nodes run an old configuration.
pub struct Fleet {
    pub cluster: Cluster,
    pub admin: PathBuf,
}

impl Fleet {
    pub fn start(groups: &[(&str, usize)]) -> Fleet {
        let cluster = Cluster::start();
        cluster.apply("control-plane", "masters", "");
        let admin = cluster.api.kubeconfig("admin", &["system:masters"]).unwrap();
        let fleet = Fleet { cluster, admin };
        fleet.create_control_plane("masters-0");
        for (group, nodes) in groups {
            fleet.cluster.apply("node", group, "");
            for number in 0..*nodes {
                fleet.create(&format!("{group}-{number}"), group);
            }
        }
        fleet
    }

    pub fn create_control_plane(&self, node: &str) {
        self.create(node, "masters");
        self.cluster.label_node(node, CONTROL_PLANE, "");
    }

    fn create(&self, node: &str, group: &str) {
        self.cluster.create_node(node, None);
        self.cluster.label_node(node, GROUP_LABEL, group);
        self.cluster.report(node);
        self.runs(node, OLD);
    }

    /// Reports, as the node, that it is Ready and runs the configuration with this hash.
    pub fn runs(&self, node: &str, hash: &str) {
        self.cluster.patch_status(node, &json!({"conditions": conditions(hash)}));
    }

    /// Reports, as the node, that it trusts the CAs with this digest.
    pub fn trusts(&self, node: &str, digest: &str) {
        self.cluster.annotate_node(node, AUTHORITIES, digest);
    }

    /// Like `runs`, but the report has the current time.
    pub fn report_now(&self, node: &str, hash: &str) {
        let now = OffsetDateTime::now_utc().format(&Rfc3339).unwrap();
        let condition = json!({
            "type": CONDITION, "status": "True", "reason": "Converged", "message": format!("configuration {hash}"), "lastHeartbeatTime": now,
        });
        self.cluster.patch_status(node, &json!({"conditions": [condition]}));
    }

    /// The hash of a group's current configuration.
    pub fn current(&self, role: &str, group: &str) -> String {
        let file = self.cluster.store().join(format!("igconfig/{role}/{group}/nodeupconfig.yaml"));
        STANDARD.encode(Sha256::digest(fs::read(file).unwrap()))
    }

    pub fn order(&self, node: &str) -> Option<Value> {
        serde_json::from_str(self.cluster.node(node)["metadata"]["annotations"][ORDER].as_str()?).ok()
    }

    /// Carries out the node's order as `fleet follow` does: reports this problem, or success if the problem is empty.
    pub fn answer(&self, node: &str, problem: &str) {
        if problem.is_empty() {
            let order = self.order(node).unwrap();
            self.runs(node, order["hash"].as_str().unwrap());
            if let Some(authorities) = order["authorities"].as_str() {
                self.trusts(node, authorities);
            }
        }
        self.outcome(node, problem);
    }

    /// Reports the outcome of the node's order, as the node would. An empty `problem` means success.
    pub fn outcome(&self, node: &str, problem: &str) {
        let order = self.order(node).unwrap();
        let mut outcome = json!({
            "rollout": order["rollout"], "attempt": order["attempt"], "hash": order["hash"], "problem": problem,
        });
        for field in ["bootID", "authorities", "program"] {
            if let Some(value) = order.get(field) {
                outcome[field] = value.clone();
            }
        }
        self.cluster.annotate_node(node, OUTCOME, outcome.to_string());
    }

    pub fn create_pod(&self, name: &str, node: &str) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": node, "containers": [{"name": "web", "image": "web"}]},
        });
        self.cluster.api.kubectl(&["create", "-f", "-"], &pod.to_string()).unwrap();
    }

    /// Reports, as kubelet, the state of a pod's container.
    fn report_pod(&self, name: &str, restarts: u32, state: &Value) {
        let container = json!({"name": "web", "image": "web", "imageID": "", "ready": false, "restartCount": restarts, "state": state});
        let patch = json!({"status": {"containerStatuses": [container]}}).to_string();
        self.cluster.kubectl(&[
            "patch",
            "pod",
            "-n",
            "default",
            name,
            "--subresource=status",
            "--type=strategic",
            "-p",
            &patch,
        ]);
    }

    pub fn rollout(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = plain_agent();
        command.args(["fleet", "rollout"]).args(arguments).arg("--kubeconfig").arg(&self.admin);
        ended(&mut command)
    }

    pub fn status(&self) -> Value {
        let (_, said) = self.rollout(&["status", "-o", "json"]);
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    /// Waits until these nodes, and no others, are changing.
    pub fn at_work(&self, nodes: &[&str]) {
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

    /// Waits until the policy makes these nodes, and no others, change.
    fn at_work_by_policy(&self, nodes: &[&str]) {
        eventually(&format!("{nodes:?} are at work by the policy"), || {
            let status = self.status();
            let groups = status["policy"]["status"]["groups"].as_object();
            let updating: Vec<&str> = groups
                .into_iter()
                .flat_map(|groups| groups.values())
                .flat_map(|group| group["updating"].as_array().unwrap())
                .map(|node| node.as_str().unwrap())
                .collect();
            updating == nodes && nodes.iter().all(|node| self.order(node).is_some())
        });
    }

    pub fn apply_policy(&self, policy: &str) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rollout", "namespace": "kops-agent"},
            "data": {"policy": policy},
        });
        self.cluster.api.kubectl(&["apply", "-f", "-"], &map.to_string()).unwrap();
    }

    fn phase_of_policy(&self) -> String {
        self.status()["policy"]["status"]["phase"].as_str().unwrap_or_default().to_owned()
    }

    pub fn phase(&self) -> String {
        self.status()["status"]["phase"].as_str().unwrap_or_default().to_owned()
    }
}

/// The conditions of a Node that is Ready and runs the configuration with this hash.
pub fn conditions(hash: &str) -> Value {
    json!([
        {"type": "Ready", "status": "True", "reason": "KubeletReady"},
        {"type": CONDITION, "status": "True", "reason": "Converged", "message": format!("configuration {hash}")},
    ])
}

/// A maintenance window that opens in three days, so it is closed now.
fn closed_window() -> String {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 86_400;
    // Day 0, 1970-01-01, was a Thursday, which has index 3. The second 3 is the number of days until the window opens.
    let day = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"][usize::try_from(days + 3 + 3).unwrap() % 7];
    format!("{day} 00:00-01:00 UTC")
}

pub fn ended(command: &mut Command) -> (Option<i32>, String) {
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
    assert!(code == Some(1) && said.contains("the groups of the Nodes are: a, b, masters"), "{said}");

    let controller = fleet.cluster.controller();
    let (code, said) = fleet.rollout(&["start", "--canary", "1", "--check-pods-after", "0"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = fleet.rollout(&["start"]);
    assert!(code == Some(1) && said.contains("is not over"), "{said}");

    fleet.at_work(&["masters-0"]);
    let order = fleet.order("masters-0").unwrap();
    assert_eq!(order["hash"], fleet.current("control-plane", "masters"));
    assert_eq!((&order["drain"], &order["maxUnavailable"]), (&json!("auto"), &json!(1)));
    assert_eq!(fleet.order("a-0"), None);
    let mut watching = Watching::start(&fleet.admin, &["rollout", "status"]);
    watching.until("masters: updating: masters-0");
    fleet.answer("masters-0", "");

    fleet.at_work(&["a-0", "b-0"]);
    watching.until("a: updating: a-0");
    assert_eq!(watching.until("a: canaries:"), "a: canaries: a-0");
    let left = watching.until("about ");
    assert!(left.contains("Turns left: 3. Median time of the last finished orders (1)"), "{left}");
    fleet.answer("b-0", "");
    fleet.answer("a-0", "kubelet is dead");
    eventually("the rollout stops", || fleet.phase() == "stopped");
    let (code, rest) = watching.ended();
    assert!(
        code == Some(4) && rest.contains(&"a-0 failed: kubelet is dead".to_owned()),
        "{code:?} {rest:#?}"
    );
    let (code, said) = fleet.rollout(&["status", "--watch"]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("a-0 failed: kubelet is dead"), "{said}");
    assert!(fleet.cluster.reasons("a-0").contains("RolloutFailed"), "{}", fleet.cluster.reasons("a-0"));
    let metric = r#"kops_agent_rollout_nodes{instance_group="a",state="failed"}"#;
    eventually("the metric counts it", || controller.get("/metrics").contains(&format!("{metric} 1")));
    assert_eq!(fleet.order("a-1"), None);

    // The operator resumes the rollout, and a new controller becomes the leader. The killed controller has not released its
    // Lease.
    controller.kill();
    let (code, said) = fleet.rollout(&["resume"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = fleet.rollout(&["status"]);
    assert!(code == Some(4) && said.contains("resumed, but no controller has read the change yet"), "{said}");
    assert_eq!(fleet.status()["status"], Value::Null, "the status of the first attempt answers no longer");
    let controller = fleet.cluster.controller();
    fleet.at_work(&["a-0"]);
    assert_eq!(fleet.order("a-0").unwrap()["attempt"], 2);
    controller.kill();
    fleet.answer("a-0", "");
    let controller = fleet.cluster.controller();
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
    assert!(code == Some(1) && said.contains("no controller has started the rollout"), "{said}");
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

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn the_flags_of_start_decide_about_groups_shares_and_earlier_configurations() {
    let fleet = Fleet::start(&[("a", 4), ("b", 1), ("c", 1)]);
    fleet.runs("masters-0", &fleet.current("control-plane", "masters"));
    let _controller = fleet.cluster.controller();
    let groups = ["--instance-group", "a", "--instance-group", "b"];
    let settings = ["--max-unavailable", "50%", "--go-back", "--check-pods-after", "0"];
    let (code, said) = fleet.rollout(&[&["start"][..], &groups, &settings].concat());
    assert_eq!(code, Some(0), "{said}");
    fleet.at_work(&["a-0", "a-1", "b-0"]);
    for (node, at_a_time) in [("a-0", 2), ("b-0", 1)] {
        let order = fleet.order(node).unwrap();
        assert_eq!((&order["mayGoBack"], &order["maxUnavailable"]), (&json!(true), &json!(at_a_time)));
    }
    ["a-0", "a-1", "b-0"].iter().for_each(|node| fleet.answer(node, ""));
    fleet.at_work(&["a-2", "a-3"]);
    ["a-2", "a-3"].iter().for_each(|node| fleet.answer(node, ""));
    eventually("the rollout is done", || fleet.phase() == "done");
    assert_eq!(fleet.order("c-0"), None);
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_rollout_waits_for_its_window() {
    let fleet = Fleet::start(&[("a", 1)]);
    fleet.runs("masters-0", &fleet.current("control-plane", "masters"));
    let _controller = fleet.cluster.controller();
    let (code, said) = fleet.rollout(&["start", "--window", "Mon-Fri 22:00-05:00 Europe/Atlantis"]);
    assert!(code == Some(2) && said.contains("not a name in the time zone database"), "{said}");
    let (_, said) = fleet.rollout(&["status"]);
    assert!(said.contains("there is no rollout"), "{said}");

    let window = closed_window();
    let (code, said) = fleet.rollout(&["start", "--window", &window]);
    assert!(code == Some(0) && said.contains("its window opens at"), "{said}");
    let (code, said) = fleet.rollout(&["status"]);
    assert!(code == Some(4) && said.contains(&format!("T00:00:00Z ({window})")), "{said}");
    assert_eq!(fleet.order("a-0"), None);
    fleet.rollout(&["abort"]);
    let (code, said) = fleet.rollout(&["start", "--window", "Mon-Sun 00:00-24:00 UTC"]);
    assert_eq!(code, Some(0), "{said}");
    fleet.at_work(&["a-0"]);
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_policy_has_nodes_follow_and_a_wrong_policy_is_refused() {
    let fleet = Fleet::start(&[("a", 2), ("b", 1)]);
    fleet.runs("masters-0", &fleet.current("control-plane", "masters"));
    let controller = fleet.cluster.controller();
    let page = fs::read_to_string(path_of("docs/rollout.md")).unwrap();
    let example = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    // The window in the example of docs/rollout.md may be open now, so a closed window replaces it.
    let example = example.replace("Mon-Fri 22:00-05:00 Europe/Berlin", &closed_window());
    fleet.cluster.api.kubectl(&["apply", "-f", "-"], &example).unwrap();
    eventually("the example of the page is accepted", || {
        fleet.status()["policy"]["accepted"]["groups"]["gpu"]["maxUnavailable"] == "1"
    });
    assert_eq!(fleet.status()["policy"]["refused"], "");

    fleet.apply_policy(AUTOMATIC);
    fleet.at_work_by_policy(&["a-0"]);
    assert_eq!(fleet.order("a-0").unwrap()["hash"], fleet.current("node", "a"));
    fleet.answer("a-0", "kubelet is dead");
    eventually("the policy stops", || fleet.phase_of_policy() == "stopped");
    let (code, said) = fleet.rollout(&["status", "--watch"]);
    assert!(code == Some(4) && said.contains("a-0 failed: kubelet is dead"), "{said}");

    // An invalid policy changes nothing. The metrics, `fleet rollout status` and an Event report it.
    fleet.apply_policy("cluster: {follow: always}");
    let metric = "kops_agent_rollout_policy_refused";
    eventually("the policy is refused", || controller.get("/metrics").contains(&format!("{metric} 1")));
    let (_, said) = fleet.rollout(&["status"]);
    assert!(
        said.contains("refused, so the previous policy stays in use") && said.contains("cluster.follow"),
        "{said}"
    );
    let events = fleet.cluster.kubectl(&["get", "events", "-n", "kube-system"]);
    assert!(events.contains("RolloutPolicyRefused"), "{events}");
    assert_eq!(fleet.phase_of_policy(), "stopped");

    // The changed configuration is rolled out by a new controller until the operator pauses.
    fleet.apply_policy(AUTOMATIC);
    eventually("the policy is accepted", || controller.get("/metrics").contains(&format!("{metric} 0")));
    controller.terminate();
    let _controller = fleet.cluster.controller();
    fleet.cluster.apply("node", "a", "tier: web");
    fleet.at_work_by_policy(&["a-0"]);
    assert_eq!(fleet.order("a-0").unwrap()["hash"], fleet.current("node", "a"));
    let (code, said) = fleet.rollout(&["pause"]);
    assert!(code == Some(0) && said.contains("paused the policy"), "{said}");
    fleet.answer("a-0", "");
    eventually("the policy is paused", || fleet.phase_of_policy() == "paused");
    assert_eq!(fleet.order("a-1"), None);

    // A rollout of the operator takes precedence over the policy.
    let (code, said) = fleet.rollout(&["start", "--instance-group", "b", "--check-pods-after", "0"]);
    assert_eq!(code, Some(0), "{said}");
    fleet.at_work(&["b-0"]);
    let (_, said) = fleet.rollout(&["status"]);
    assert!(said.contains("policy: waits for the rollout"), "{said}");
    fleet.answer("b-0", "");
    eventually("the rollout is done", || fleet.phase() == "done");
    let (code, said) = fleet.rollout(&["abort"]);
    assert!(code == Some(1) && said.contains("there is nothing to abort"), "{said}");
    let (code, said) = fleet.rollout(&["resume"]);
    assert!(code == Some(0) && said.contains("resumed the policy"), "{said}");
    fleet.at_work_by_policy(&["a-1"]);
    fleet.answer("a-1", "");
    eventually("the policy is done", || fleet.phase_of_policy() == "done");
    let (code, said) = fleet.rollout(&["status"]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn pods_that_crash_after_a_change_fail_their_node() {
    let fleet = Fleet::start(&[("a", 3)]);
    fleet.runs("masters-0", &fleet.current("control-plane", "masters"));
    let running = json!({"running": {"startedAt": "2026-11-29T00:00:00Z"}});
    let looping = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}});
    for (pod, node, state) in [("on-0", "a-0", &looping), ("on-1", "a-1", &running)] {
        fleet.create_pod(pod, node);
        fleet.report_pod(pod, 3, state);
    }
    let controller = fleet.cluster.controller();
    let lists = || fleet.cluster.requests("pods", "LIST");
    let before = lists();
    let (code, said) = fleet.rollout(&["start", "--check-pods-after", "1"]);
    assert_eq!(code, Some(0), "{said}");
    fleet.at_work(&["a-0"]);
    fleet.report_pod("on-0", 9, &looping);
    fleet.answer("a-0", "");
    // The pod on a-0 had crashed even before the change. The pod on a-1 had not.
    fleet.at_work(&["a-1"]);
    fleet.report_pod("on-1", 4, &looping);
    controller.terminate();
    let controller = fleet.cluster.controller();
    fleet.answer("a-1", "");
    eventually("the rollout stops", || fleet.phase() == "stopped");
    let (_, said) = fleet.rollout(&["status"]);
    assert!(said.contains("a-1 failed: its run succeeded, but the container default/on-1/web"), "{said}");
    assert_eq!(fleet.order("a-2"), None);
    assert_eq!(lists() - before, 5, "a look at each node before its order, one after, and one more at a-1");

    // If the controller may not list pods, the rollout continues, and its status contains the reason.
    fleet.cluster.kubectl(&["delete", "clusterrolebinding", "kops-agent-rollout"]);
    fleet.rollout(&["resume"]);
    fleet.at_work(&["a-2"]);
    let (_, said) = fleet.rollout(&["status"]);
    assert!(said.contains("a-2: its pods are not compared: listing its pods:"), "{said}");
    fleet.answer("a-2", "");
    eventually("the rollout is done", || fleet.phase() == "done");
    drop(controller);
}
