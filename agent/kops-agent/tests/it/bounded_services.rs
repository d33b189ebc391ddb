//! Services that stay running take bounded shares of CPU and memory, because kubelet, containerd and the API server run beside them.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use kops_agent_spec::parse_document;
use serde_json::Value;

use crate::example::Machine;
use kops_agent_tests::example_store::CONTROL_PLANE;

const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const MIB: u64 = 1 << 20;

#[test]
fn each_service_that_stays_running_has_a_bound() {
    let mut bounded = 0;
    for entry in fs::read_dir(Path::new(CHECKOUT).join("units")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        if text.contains("\nRestart=always\n") {
            is_bounded(&path.display().to_string(), &text);
            bounded += 1;
        }
    }
    assert_eq!(bounded, 3, "the controller, the applier of add-ons and the follower of rollouts");
}

#[test]
fn the_services_of_a_node_keep_the_bounds_of_the_packaged_units() {
    let machine = Machine::new(CONTROL_PLANE);
    let state: Value =
        serde_json::from_str(&machine.state(&["--controller", "--addons", "--rollouts"])).unwrap();
    for name in ["kops-agent-controller.service", "kops-agent-addons.service", "kops-agent-follow.service"] {
        let is_it = |resource: &&Value| resource["name"] == name;
        let unit = state["resources"].as_array().unwrap().iter().find(is_it).unwrap();
        is_bounded(name, unit["text"].as_str().unwrap());
    }
}

#[test]
fn each_container_of_a_manifest_has_the_bound_of_its_service() {
    let mut containers = 0;
    for entry in fs::read_dir(Path::new(CHECKOUT).join("packaging/kubernetes")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        for document in fs::read_to_string(&path).unwrap().split("\n---") {
            let document = parse_document(document.as_bytes(), &name).unwrap();
            for container in
                document["spec"]["template"]["spec"]["containers"].as_array().into_iter().flatten()
            {
                let resources = &container["resources"];
                assert_eq!(resources["limits"]["memory"], "512Mi", "{name}");
                assert!(resources["requests"]["cpu"].is_string(), "{name} has no weight of CPU");
                containers += 1;
            }
        }
    }
    assert!(containers > 0);
}

#[track_caller]
fn is_bounded(name: &str, text: &str) {
    let setting = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    let weight: u64 =
        setting("CPUWeight=").unwrap_or_else(|| panic!("{name}: no CPUWeight=")).parse().unwrap();
    assert!(weight < 100, "{name}: kubelet and containerd have the default weight 100");
    let memory = setting("MemoryMax=").unwrap_or_else(|| panic!("{name}: no MemoryMax="));
    let bytes = memory.strip_suffix('M').unwrap().parse::<u64>().unwrap() * MIB;
    assert_eq!(bytes, 512 * MIB, "{name}");
}
