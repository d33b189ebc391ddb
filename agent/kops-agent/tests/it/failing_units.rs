//! A run names a unit that does not start. kubelet and everything else of the node start anyway.

#![allow(clippy::unwrap_used)]

use crate::example;

use std::fs;
use std::process::Command;

use crate::example::{Ended, Machine};
use kops_agent_tests::example_store::NODES;

const STATE: &str = "var/lib/kops-agent/recorded/state.json";
const REQUESTS: &str = "var/lib/kops-agent/recorded/requests.txt";

/// A machine on which `units` never start.
fn refusing(units: &[&str]) -> Machine {
    let machine = Machine::new(NODES);
    // The refusal applies while the file contains the text. Every file contains the empty text.
    let refusal = |unit: &&str| serde_json::json!({"unit": unit, "path": "/etc/hostname", "text": ""});
    let refusals: Vec<_> = units.iter().map(refusal).collect();
    let state = machine.root().join(STATE);
    fs::create_dir_all(state.parent().unwrap()).unwrap();
    fs::write(state, serde_json::json!({ "refusals": refusals }).to_string()).unwrap();
    machine
}

#[track_caller]
fn kubelet_joins(machine: &Machine) {
    let requests = fs::read_to_string(machine.root().join(REQUESTS)).unwrap();
    for request in ["systemd: enable kubelet.service", "systemd: start kubelet.service"] {
        assert!(requests.lines().any(|line| line == request), "no {request:?} in:\n{requests}");
    }
}

#[test]
fn a_unit_that_does_not_start_is_named_and_kubelet_is_started() {
    let machine = refusing(&["chrony.service"]);
    let refused = "`systemctl start chrony.service` is refused";
    machine.run("converge", &[]).with(1, &["everything but this unit is as it should be", refused]);
    kubelet_joins(&machine);
    let mut status = Command::new(example::agent());
    let status = Ended::from_command(status.env_clear().args(["status", "--root"]).arg(machine.root()));
    status.with(4, &[]);
    assert!(status.stdout.contains(refused), "{}", status.stdout);

    // The next run starts only the failed unit again.
    let plan = machine.run("plan", &["--exit-code"]);
    plan.with(4, &[]);
    assert!(
        plan.stdout.contains("unit chrony.service: start") && !plan.stdout.contains("kubelet"),
        "{plan:?}"
    );
    let state = machine.root().join(STATE);
    let mended: serde_json::Value = serde_json::from_slice(&fs::read(&state).unwrap()).unwrap();
    fs::write(
        &state,
        serde_json::json!({"units": mended["units"], "packages": mended["packages"],
        "users": mended["users"], "groups": mended["groups"], "modules": mended["modules"],
        "images": mended["images"], "owners": mended["owners"]})
        .to_string(),
    )
    .unwrap();
    machine.run("converge", &[]).with(0, &[]);
    machine.run("plan", &["--exit-code"]).with(0, &[]);
}

#[test]
fn a_run_that_retries_for_ever_ends_when_only_a_unit_is_left_that_no_pod_depends_on() {
    let machine = refusing(&["chrony.service"]);
    let mut boot = machine.agent("converge").args(["--retries", "-1"]).spawn().unwrap();
    // A run that does not end must not block the test.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
    let ended = loop {
        match boot.try_wait().unwrap() {
            Some(ended) => break Some(ended),
            None if std::time::Instant::now() > deadline => break None,
            None => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    };
    if ended.is_none() {
        boot.kill().unwrap();
        boot.wait().unwrap();
    }
    assert_eq!(ended.and_then(|ended| ended.code()), Some(1));
    kubelet_joins(&machine);
    let requests = fs::read_to_string(machine.root().join(REQUESTS)).unwrap();
    let starts = requests.lines().filter(|line| *line == "systemd: start chrony.service").count();
    assert!(starts <= 1, "it is tried again and again:\n{requests}");
}

#[test]
fn a_runtime_that_does_not_start_leaves_kubelet_enabled_and_started() {
    let machine = refusing(&["containerd.service", "chrony.service"]);
    machine
        .run("converge", &[])
        .with(1, &["start containerd.service` is refused", "start chrony.service` is refused"]);
    kubelet_joins(&machine);
}

#[test]
fn a_masked_kubelet_that_does_not_run_is_a_difference() {
    let machine = refusing(&[]);
    // On Debian with the folder `lib/systemd/system`, the agent's units are not in `etc/systemd/system`. So a mask in
    // `etc/systemd/system` comes from an operator, and is no drift.
    fs::create_dir_all(machine.root().join("lib/systemd/system")).unwrap();
    fs::create_dir_all(machine.root().join("etc")).unwrap();
    fs::write(machine.root().join("etc/os-release"), "ID=debian\nVERSION_ID=12\n").unwrap();
    machine.run("converge", &[]).with(0, &[]);
    let masked = machine.root().join("etc/systemd/system/kubelet.service");
    fs::create_dir_all(masked.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/null", &masked).unwrap();
    let file = machine.root().join(STATE);
    let mut state: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let running = &mut state["units"]["kubelet.service"]["running"];
    assert_eq!(*running, true);
    *running = false.into();
    fs::write(&file, state.to_string()).unwrap();
    for verb in [&["verify"][..], &["plan", "--exit-code"]] {
        let looked = machine.run(verb[0], &verb[1..]);
        looked.with(4, &[]);
        assert!(looked.stdout.contains("CANNOT BE REPAIRED"), "{looked:#?}");
    }
    machine.run("verify", &["--repair"]).with(1, &["systemctl unmask kubelet.service"]);
}
