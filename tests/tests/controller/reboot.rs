//! `fleet reboot` on a real API server: the leading controller orders reboots, and nodes answer as `fleet follow` does. A
//! stand-in for the node's machine gets another boot ID, or does not come back.

use serde_json::json;

use crate::cluster::{eventually, plain_agent};
use crate::rollout::{Fleet, ended};

/// The node's kubelet reports this boot.
fn boots(fleet: &Fleet, node: &str, boot_id: &str, ready: &str) {
    let patch = json!({"status": {
        "conditions": [{"type": "Ready", "status": ready, "reason": "Kubelet"}],
        "nodeInfo": {
            "bootID": boot_id, "machineID": "", "systemUUID": "", "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "",
            "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "", "architecture": "",
        },
    }});
    let patch = patch.to_string();
    fleet.cluster.kubectl(&["patch", "node", node, "--subresource=status", "--type=strategic", "-p", &patch]);
}

/// The node reports whether it requires a reboot in this boot.
fn requires(fleet: &Fleet, node: &str, boot_id: &str, reasons: &[&str]) {
    let report = json!({"schemaVersion": 1, "bootID": boot_id, "reasons": reasons});
    let annotation = format!("kops-agent/reboot-required={report}");
    fleet.cluster.kubectl(&["annotate", "--overwrite", "node", node, &annotation]);
}

fn fleet_command(fleet: &Fleet, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = plain_agent();
    command.arg("fleet").args(arguments).arg("--kubeconfig").arg(&fleet.admin);
    ended(&mut command)
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn nodes_reboot_in_turns_and_one_that_does_not_come_back_stops_the_others() {
    let fleet = Fleet::start(&[("a", 3), ("b", 1)]);
    for node in ["masters-0", "a-0", "a-1", "a-2", "b-0"] {
        boots(&fleet, node, "boot-1", "True");
        requires(&fleet, node, "boot-1", if node == "a-2" { &[] } else { &["packages ask for it: libc6"] });
    }
    boots(&fleet, "b-0", "boot-2", "True");
    let (_, said) = fleet_command(&fleet, &["status"]);
    let shown = |node: &str| {
        let line = said.lines().find(|line| line.contains(node)).unwrap();
        ["required", " no "].into_iter().find(|state| line.contains(state)).unwrap_or("-")
    };
    assert_eq!(["a-0", "a-2", "b-0"].map(shown), ["required", " no ", "-"], "{said}");

    let (code, said) = fleet_command(&fleet, &["reboot"]);
    assert!(code == Some(2) && said.contains("--all-required"), "{said}");
    let (code, said) = fleet_command(&fleet, &["reboot", "--instance-group", "c"]);
    assert!(code == Some(2) && said.contains("the groups of the Nodes are: a, b, masters"), "{said}");
    let (code, said) = fleet_command(&fleet, &["reboot", "--instance-group", "b", "--all-required"]);
    assert!(code == Some(0) && said.contains("nothing reboots"), "{said}");

    let controller = fleet.cluster.controller();
    let blocked = ["--blocked-by-pods", "app=batch", "--check-pods-after", "0"];
    let (code, said) = fleet_command(&fleet, &[&["reboot", "--all-required"], &blocked[..]].concat());
    assert!(code == Some(0) && said.contains("3 nodes reboot"), "{said}");
    let (code, said) = fleet.rollout(&["start"]);
    assert!(code == Some(1) && said.contains("is not over"), "{said}");
    fleet.at_work(&["masters-0"]);
    let order = fleet.order("masters-0").unwrap();
    assert_eq!((&order["bootID"], &order["drain"]), (&json!("boot-1"), &json!("auto")));
    fleet.create_pod("batch", "a-1");
    fleet.cluster.kubectl(&["label", "pod", "-n", "default", "batch", "app=batch"]);
    boots(&fleet, "masters-0", "boot-2", "True");
    fleet.outcome("masters-0", "");

    fleet.at_work(&["a-0"]);
    fleet.outcome("a-0", "a pod stays");
    eventually("the rollout stops", || fleet.phase() == "stopped");
    let (_, said) = fleet.rollout(&["status"]);
    assert!(said.contains("a-0 failed: a pod stays"), "{said}");
    assert!(fleet.cluster.reasons("a-0").contains("RolloutFailed"), "{}", fleet.cluster.reasons("a-0"));
    assert_eq!(fleet.order("a-1"), None);

    // Another controller leads, and the operator resumes.
    controller.terminate();
    let _controller = fleet.cluster.controller();
    let (code, said) = fleet.rollout(&["resume"]);
    assert_eq!(code, Some(0), "{said}");
    eventually("it tries again", || fleet.order("a-0").unwrap()["attempt"] == 2);
    boots(&fleet, "a-0", "boot-2", "True");
    fleet.outcome("a-0", "");
    let waits_for = "waits for: the nodes: a-1: its pod default/batch keeps it from a reboot (app=batch)";
    eventually("a pod holds the last node", || fleet.rollout(&["status"]).1.contains(waits_for));
    fleet.cluster.kubectl(&["delete", "pod", "-n", "default", "batch", "--force"]);
    fleet.at_work(&["a-1"]);
    boots(&fleet, "a-1", "boot-2", "True");
    fleet.outcome("a-1", "");
    eventually("the rollout is done", || fleet.phase() == "done");
    assert_eq!([fleet.order("a-2"), fleet.order("b-0")], [None, None]);
}
