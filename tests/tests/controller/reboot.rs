//! `fleet reboot` on a real API server: the leading controller orders reboots, and nodes answer as `fleet follow` does. A
//! stand-in for the node's machine gets another boot ID, or does not come back.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use kops_agent_tests::loopback::LoopbackServer;
use serde_json::{Value, json};

use crate::boot_to_label::network::{CONTROL_PLANE, on_control_plane};
use crate::cluster::{Cluster, agent_on_node, eventually, id, path_of, plain_agent};
use crate::pacing::Scene;
use crate::rollout::{Fleet, ORDER, OUTCOME, ended};

/// Reports, as the node's kubelet, the boot id and whether the node is Ready.
fn boots(cluster: &Cluster, node: &str, boot_id: &str, ready: &str) {
    let status = json!({
        "conditions": [{"type": "Ready", "status": ready, "reason": "Kubelet"}],
        "nodeInfo": {
            "bootID": boot_id, "machineID": "", "systemUUID": "", "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "",
            "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "", "architecture": "",
        },
    });
    cluster.patch_status(node, &status);
}

/// Reports, as the node, the reasons for which its machine must reboot. `boot_id` identifies the machine's current boot.
fn requires(cluster: &Cluster, node: &str, boot_id: &str, reasons: &[&str]) {
    let report = json!({"schemaVersion": 1, "bootID": boot_id, "reasons": reasons});
    cluster.annotate_node(node, "kops-agent/reboot-required", report.to_string());
}

fn fleet_command(admin: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = plain_agent();
    command.arg("fleet").args(arguments).arg("--kubeconfig").arg(admin);
    ended(&mut command)
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn nodes_reboot_in_turns_and_one_that_does_not_come_back_stops_the_others() {
    let fleet = Fleet::start(&[("a", 3), ("b", 1)]);
    for node in ["masters-0", "a-0", "a-1", "a-2", "b-0"] {
        boots(&fleet.cluster, node, "boot-1", "True");
        requires(
            &fleet.cluster,
            node,
            "boot-1",
            if node == "a-2" { &[] } else { &["packages ask for it: libc6"] },
        );
    }
    boots(&fleet.cluster, "b-0", "boot-2", "True");
    let (_, said) = fleet_command(&fleet.admin, &["status"]);
    let shown = |node: &str| {
        let line = said.lines().find(|line| line.contains(node)).unwrap();
        ["required", " no "].into_iter().find(|state| line.contains(state)).unwrap_or("-")
    };
    assert_eq!(["a-0", "a-2", "b-0"].map(shown), ["required", " no ", "-"], "{said}");

    let (code, said) = fleet_command(&fleet.admin, &["reboot"]);
    assert!(code == Some(2) && said.contains("--all-required"), "{said}");
    let (code, said) = fleet_command(&fleet.admin, &["reboot", "--instance-group", "c"]);
    assert!(code == Some(1) && said.contains("the groups of the Nodes are: a, b, masters"), "{said}");
    let (code, said) = fleet_command(&fleet.admin, &["reboot", "--instance-group", "b", "--all-required"]);
    assert!(code == Some(0) && said.contains("nothing reboots"), "{said}");

    let controller = fleet.cluster.controller();
    let blocked = ["--blocked-by-pods", "app=batch", "--check-pods-after", "0"];
    let (code, said) = fleet_command(&fleet.admin, &[&["reboot", "--all-required"], &blocked[..]].concat());
    assert!(code == Some(0) && said.contains("3 nodes reboot"), "{said}");
    let (code, said) = fleet.rollout(&["start"]);
    assert!(code == Some(1) && said.contains("is not over"), "{said}");
    fleet.at_work(&["masters-0"]);
    let order = fleet.order("masters-0").unwrap();
    assert_eq!((&order["bootID"], &order["drain"]), (&json!("boot-1"), &json!("always")));
    assert!(order["until"].as_str() > order["at"].as_str(), "{order}");
    fleet.create_pod("batch", "a-1");
    fleet.cluster.kubectl(&["label", "pod", "-n", "default", "batch", "app=batch"]);
    boots(&fleet.cluster, "masters-0", "boot-2", "True");
    fleet.outcome("masters-0", "");

    fleet.at_work(&["a-0"]);
    fleet.outcome("a-0", "a pod stays");
    eventually("the rollout stops", || fleet.phase() == "stopped");
    let (_, said) = fleet.rollout(&["status"]);
    assert!(said.contains("a-0 failed: a pod stays"), "{said}");
    assert!(fleet.cluster.reasons("a-0").contains("RolloutFailed"), "{}", fleet.cluster.reasons("a-0"));
    assert_eq!(fleet.order("a-1"), None);
    eventually("the order of the failed node is taken back", || fleet.order("a-0").is_none());

    // A new controller becomes the leader, and the operator resumes the rollout.
    controller.terminate();
    let _controller = fleet.cluster.controller();
    let (code, said) = fleet.rollout(&["resume"]);
    assert_eq!(code, Some(0), "{said}");
    eventually("it tries again", || fleet.order("a-0").is_some_and(|order| order["attempt"] == 2));
    boots(&fleet.cluster, "a-0", "boot-2", "True");
    fleet.outcome("a-0", "");
    let waits_for = "waits for: the nodes: a-1: the pod default/batch blocks the reboot (selector app=batch)";
    eventually("a pod holds the last node", || fleet.rollout(&["status"]).1.contains(waits_for));
    fleet.cluster.kubectl(&["delete", "pod", "-n", "default", "batch", "--force"]);
    fleet.at_work(&["a-1"]);
    boots(&fleet.cluster, "a-1", "boot-2", "True");
    fleet.outcome("a-1", "");
    eventually("the rollout is done", || fleet.phase() == "done");
    assert_eq!([fleet.order("a-2"), fleet.order("b-0")], [None, None]);
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn the_policy_reboots_a_node_once_an_interval_and_takes_orders_back_once_it_is_switched_off() {
    let fleet = Fleet::start(&[("a", 2)]);
    boots(&fleet.cluster, "a-0", "boot-1", "True");
    requires(&fleet.cluster, "a-0", "boot-1", &["packages ask for it: libc6"]);
    let _controller = fleet.cluster.controller();
    let automatic = "cluster: {reboot: automatic, checkPodsAfter: 0}";
    let is_ordered = || eventually("a-0 has an order", || fleet.order("a-0").is_some());
    fleet.apply_policy(automatic);
    is_ordered();
    fleet.apply_policy("cluster: {reboot: manual}");
    eventually("the order is taken back", || fleet.order("a-0").is_none());
    fleet.apply_policy(automatic);
    is_ordered();
    fleet.rollout(&["pause"]);
    eventually("the order is taken back", || fleet.order("a-0").is_none());
    fleet.rollout(&["resume"]);
    is_ordered();

    // The reason for the reboot still exists after the reboot, so the node requires a reboot again.
    boots(&fleet.cluster, "a-0", "boot-2", "True");
    requires(&fleet.cluster, "a-0", "boot-2", &["packages ask for it: libc6"]);
    fleet.outcome("a-0", "");
    let held = "a-0 waits: it rebooted for the order given at ";
    eventually("the node is held back", || fleet.rollout(&["status"]).1.contains(held));
    assert_eq!(fleet.order("a-0").unwrap()["bootID"], "boot-1");
}

/// A stand-in for Prometheus behind the Service `monitoring/prometheus`. Each query has a result while `fires` is true. The stand-in does
/// not listen on loopback, because the API server rejects endpoints with loopback addresses, and proxies only to addresses of pods.
fn prometheus(fleet: &Fleet, fires: Arc<AtomicBool>) -> LoopbackServer {
    let service = service_fn(move |request: Request<Incoming>| {
        let result = match fires.load(Ordering::Relaxed) {
            true => json!([{"metric": {"alertname": "DiskFull"}, "value": [1, "1"]}]),
            false => json!([]),
        };
        let answer = match request.uri().path() {
            "/api/v1/query" => json!({"status": "success", "data": {"result": result}}).to_string(),
            path => format!("there is no {path}"),
        };
        async move { Ok::<_, Infallible>(Response::new(answer)) }
    });
    let server = LoopbackServer::start_at((CONTROL_PLANE, 0).into(), "prometheus", service).unwrap();
    let metadata = json!({"name": "prometheus", "namespace": "monitoring"});
    let pod = json!({"kind": "Pod", "name": "prometheus", "namespace": "monitoring"});
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "monitoring"}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
         "spec": {"nodeName": "masters-0", "containers": [{"name": "prometheus", "image": "prometheus"}]}},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 9090}]}},
        {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": [
            {"addresses": [{"ip": CONTROL_PLANE, "targetRef": pod}], "ports": [{"port": server.address().port()}]},
        ]},
    ]});
    fleet.cluster.api.kubectl(&["create", "-f", "-"], &objects.to_string()).unwrap();
    let status = json!({"status": {"podIP": CONTROL_PLANE, "podIPs": [{"ip": CONTROL_PLANE}]}}).to_string();
    let patch = ["patch", "pod", "-n", "monitoring", "prometheus", "--subresource=status", "-p", &status];
    fleet.cluster.kubectl(&patch);
    server
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn alerts_hold_reboots_and_the_controller_asks_prometheus_with_the_right_of_the_page() {
    on_control_plane(|| {
        let fleet = Fleet::start(&[("a", 1)]);
        boots(&fleet.cluster, "a-0", "boot-1", "True");
        requires(&fleet.cluster, "a-0", "boot-1", &["packages ask for it: libc6"]);
        let fires = Arc::new(AtomicBool::new(true));
        let _prometheus = prometheus(&fleet, Arc::clone(&fires));
        let _controller = fleet.cluster.controller();
        let alerts = ["--blocked-by-alerts", "ALERTS", "--prometheus", "monitoring/prometheus:9090"];
        let reboot = ["reboot", "--all-required", "--check-pods-after", "0"];
        let (code, said) = fleet_command(&fleet.admin, &[&reboot[..], &alerts].concat());
        assert_eq!(code, Some(0), "{said}");
        let waits_for = |why: &str| eventually(why, || fleet.rollout(&["status"]).1.contains(why));
        waits_for("no node reboots: asking Prometheus (monitoring/prometheus:9090) for ALERTS");

        let page = fs::read_to_string(path_of("docs/rollout.md")).unwrap();
        let mut blocks = page.split("```yaml\n").map(|rest| rest.split("```").next().unwrap());
        let right = blocks.find(|block| block.contains("services/proxy")).unwrap();
        fleet.cluster.api.kubectl(&["apply", "-f", "-"], right).unwrap();
        waits_for("no node reboots while Prometheus has a result for ALERTS");
        assert_eq!(fleet.order("a-0"), None);
        fires.store(false, Ordering::Relaxed);
        fleet.at_work(&["a-0"]);
    });
}

/// A machine that is a folder, with the kubeconfig of a Node's kubelet. Requests to systemd, such as a reboot, are written to a file
/// and have no other effect.
struct Machine {
    root: PathBuf,
}

/// A process that is killed at the end of the test.
struct Following(Child);

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Machine {
    fn new(cluster: &Cluster, node: &str) -> Machine {
        let root = cluster.make_folder("machine");
        for folder in ["var/lib/kubelet", "var/lib/kops-agent"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let kubeconfig = cluster.api.kubeconfig(&format!("system:node:{node}"), &["system:nodes"]).unwrap();
        fs::copy(kubeconfig, root.join("var/lib/kubelet/kubeconfig")).unwrap();
        let record = json!({"version": 1, "configHash": "a=", "convergedSince": "2026-01-01T00:00:00Z", "resources": {}});
        fs::write(root.join("var/lib/kops-agent/record.json"), record.to_string()).unwrap();
        Machine { root }
    }

    fn follow(&self) -> Following {
        let mut agent = agent_on_node();
        agent.args(["fleet", "follow", "--root"]).arg(&self.root).stderr(Stdio::piped());
        Following(agent.spawn().unwrap())
    }

    /// The number of times that the machine has rebooted. Each request to reboot is recorded shortly before this number changes.
    fn reboots(&self) -> u64 {
        let state = fs::read_to_string(self.root.join("var/lib/kops-agent/recorded/state.json"));
        let state: Value = serde_json::from_str(&state.unwrap_or_default()).unwrap_or_default();
        state["reboots"].as_u64().unwrap_or_default()
    }
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_node_takes_a_slot_drains_reboots_uncordons_and_answers() {
    let scene = Scene::start();
    let cluster = &scene.world.cluster;
    let _controller = scene.world.controller();
    scene.is_labelled();
    let admin = cluster.api.kubeconfig("admin", &["system:masters"]).unwrap();
    let name = id(1);
    let node = || cluster.node(&name);
    let annotation = |key: &str| -> Value {
        let node = node();
        let text = node["metadata"]["annotations"][key].as_str();
        text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
    };
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"nodeName": name, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}});
    cluster.api.kubectl(&["create", "-f", "-"], &pod.to_string()).unwrap();
    boots(cluster, &name, "recorded", "True");
    requires(cluster, &name, "recorded", &[]);
    cluster.report(&id(2));
    let reboot = ["reboot", "--instance-group", "nodes", "--check-pods-after", "0"];
    let (code, said) = fleet_command(&admin, &reboot);
    assert!(code == Some(0) && said.contains("1 nodes reboot"), "{said}");
    eventually("the order is written", || annotation(ORDER)["bootID"] == "recorded");
    assert_eq!(annotation("kops-agent/last-reboot")["bootID"], "recorded");

    // In this test, the machine is only a folder, so it requests no slot. The test requests the slot for it.
    let lease = scene.acquire(1, 1).unwrap();
    assert!(scene.acquire(2, 1).is_none());
    let machine = Machine::new(cluster, &name);
    {
        let _following = machine.follow();
        eventually("the machine reboots", || machine.reboots() == 1);
    }
    let drained = node();
    assert_eq!(drained["spec"]["unschedulable"], true, "{drained}");
    assert!(!cluster.kubectl(&["get", "pods", "-n", "default", "-o", "name"]).contains("web"));
    assert_eq!(
        (scene.lease(&lease)["spec"]["holderIdentity"].clone(), annotation(OUTCOME)),
        (json!(name), Value::Null)
    );

    boots(cluster, &name, "recorded-1", "True");
    let following = machine.follow();
    eventually("the node answers", || annotation(OUTCOME)["problem"] == "");
    assert_eq!((node()["spec"].get("unschedulable"), machine.reboots()), (None, 1));
    eventually("the rollout is done", || fleet_command(&admin, &["rollout", "status"]).0 == Some(0));
    scene.ask(1, "release", 1);
    drop(following);

    // The operator aborts the next reboot while a concurrent run of the agent has the lock.
    let (code, said) = fleet_command(&admin, &reboot);
    assert_eq!(code, Some(0), "{said}");
    eventually("the order is written", || annotation(ORDER)["bootID"] == "recorded-1");
    let run = File::create(machine.root.join("var/lib/kops-agent/lock")).unwrap();
    run.lock().unwrap();
    let mut following = machine.follow();
    let mut said = BufReader::new(following.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.contains("waiting for another run")), "it does not wait");
    assert_eq!(fleet_command(&admin, &["rollout", "abort"]).0, Some(0));
    eventually("the order is taken back", || annotation(ORDER).is_null());
    drop(run);
    assert!(said.any(|line| line.contains("the order was withdrawn")), "it obeys an order that is gone");
    assert_eq!((machine.reboots(), node()["spec"].get("unschedulable")), (1, None));
}
