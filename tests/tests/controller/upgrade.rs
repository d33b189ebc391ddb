//! `fleet upgrade` on a real API server: the leading controller orders nodes to run another version of kops-agent, if the state store
//! has the program file. Nodes answer as `fleet follow` does.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cluster::{eventually, plain_agent};
use crate::rollout::{Fleet, ended};

const FILE: &str = "kops-agent/program.yaml";

fn program_file(fleet: &Fleet, version: &str, sha256: &str) -> PathBuf {
    let file = fleet.cluster.make_folder("desk").join(format!("{version}.yaml"));
    let url = "https://mirror.example.com/kops-agent";
    fs::write(
        &file,
        format!("version: {version}\nprograms: {{amd64: {{url: {url}, sha256: '{sha256}'}}}}\n"),
    )
    .unwrap();
    file
}

/// Copies a program file into the state store.
fn publish(fleet: &Fleet, file: &Path) {
    let stored = fleet.cluster.store().join(FILE);
    fs::create_dir_all(stored.parent().unwrap()).unwrap();
    fs::copy(file, stored).unwrap();
}

/// Reports, as the node, this version and digest of kops-agent.
fn reports(fleet: &Fleet, node: &str, version: &str, sha256: &str) {
    let report = json!({"schemaVersion": 1, "version": version, "sha256": sha256});
    let annotations = [format!("kops-agent/version={version}"), format!("kops-agent/program={report}")];
    fleet.cluster.kubectl(&["annotate", "--overwrite", "node", node, &annotations[0], &annotations[1]]);
}

fn upgrade(fleet: &Fleet, file: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = plain_agent();
    command.args(["fleet", "upgrade", "--program"]).arg(file).args(arguments);
    ended(command.arg("--kubeconfig").arg(&fleet.admin))
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn nodes_take_the_program_of_the_state_store_in_turns_and_go_back() {
    let [old, new] = ["0", "a"].map(|digit| digit.repeat(64));
    let fleet = Fleet::start(&[("a", 3)]);
    let next = program_file(&fleet, "0.2.0", &new);
    let (code, said) = upgrade(&fleet, &next, &[]);
    assert!(code == Some(4) && said.contains("all of these nodes are left out"), "{said}");
    // The node a-2 has a version of kops-agent that does not report its program.
    ["masters-0", "a-0", "a-1"].iter().for_each(|node| reports(&fleet, node, "0.1.0", &old));
    let previous = program_file(&fleet, "0.1.0", &old);

    let wrong = program_file(&fleet, "0.3.0", "abc");
    let (code, said) = upgrade(&fleet, &wrong, &[]);
    assert!(code == Some(3) && said.contains("0.3.0.yaml is wrong: \"abc\" is not a SHA-256"), "{said}");
    let (code, said) = upgrade(&fleet, &next, &["--instance-group", "c"]);
    assert!(code == Some(1) && said.contains("the groups of the Nodes are: a, masters"), "{said}");
    let (code, said) = upgrade(&fleet, &previous, &[]);
    assert!(code == Some(0) && said.contains("nothing changes"), "{said}");

    // The state store first has the previous program file, and later the next one.
    publish(&fleet, &previous);
    let _controller = fleet.cluster.controller();
    let (code, said) = upgrade(&fleet, &next, &["--canary", "1", "--observe", "1"]);
    assert!(code == Some(0) && said.contains("3 nodes change to version 0.2.0"), "{said}");
    assert!(said.contains("may be too old: a-2"), "{said}");
    let (code, said) = upgrade(&fleet, &next, &[]);
    assert!(code == Some(1) && said.contains("is not over") && !said.contains("nodes change"), "{said}");
    let waits = format!("waits for: the state store has another {FILE}, for version 0.1.0");
    eventually("it waits for the file", || fleet.rollout(&["status"]).1.contains(&waits));
    assert_eq!(fleet.order("masters-0"), None);
    publish(&fleet, &next);
    fleet.at_work(&["masters-0"]);
    let order = fleet.order("masters-0").unwrap();
    assert_eq!((&order["program"], &order["drain"]), (&json!(true), &json!("never")));
    assert!(order["until"].is_string(), "{order}");
    reports(&fleet, "masters-0", "0.2.0", &new);
    fleet.outcome("masters-0", "");

    fleet.at_work(&["a-0"]);
    fleet.outcome("a-0", "the new program would change this node");
    eventually("the rollout stops", || fleet.phase() == "stopped");
    let (_, said) = fleet.rollout(&["status"]);
    for expected in [
        "to version 0.2.0 of kops-agent: stopped",
        "a-0 failed: the new program would",
        "a: left out: 1",
        "without an order: a-2",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in {said}");
    }
    let (code, said) = fleet.rollout(&["resume"]);
    assert_eq!(code, Some(0), "{said}");
    for node in ["a-0", "a-1"] {
        fleet.at_work(&[node]);
        reports(&fleet, node, "0.2.0", &new);
        fleet.outcome(node, "");
    }
    eventually("the rollout is done", || fleet.phase() == "done");
    assert_eq!(fleet.order("a-2"), None);

    // The group `a` is downgraded to the previous version. The node a-2 now runs a version that reports its program.
    reports(&fleet, "a-2", "0.2.0", &new);
    publish(&fleet, &previous);
    let (code, said) = upgrade(&fleet, &previous, &["--instance-group", "a", "--max-unavailable", "3"]);
    assert!(code == Some(0) && said.contains("3 nodes change to version 0.1.0"), "{said}");
    // Workers do not wait for control planes, because the versions of kubelets stay the same.
    fleet.at_work(&["a-0", "a-1", "a-2"]);
    // A pause withdraws the rollout's orders to nodes that have not replaced their kops-agent program yet.
    let (code, said) = fleet.rollout(&["pause"]);
    assert_eq!(code, Some(0), "{said}");
    eventually("the orders are taken back", || {
        ["a-0", "a-1", "a-2"].iter().all(|node| fleet.order(node).is_none())
    });
}
