//! Add-ons applied by a service in the place of protokube, which applies them up to kOps 1.35.

use std::fs;
use std::process::Command;

use kops_agent_tests::example_cluster::edit;
use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE};

use crate::example::{self, Ended, Machine};

const KOPS: &str = "1.35.2";
const PROTOKUBE: &str = "etc/systemd/system/protokube.service";
const CHANNELS: &str = "opt/kops/bin/channels";
const SERVICE: &str = "etc/systemd/system/kops-agent-addons.service";
const SETTINGS: &str = "etc/kubernetes/kops-channels/settings.json";

/// A control plane whose store kOps 1.35 wrote, with the configuration that kOps derived.
fn of_kops_1_35() -> Machine {
    let machine = Machine::of(CONTROL_PLANE);
    machine.serve_downloads_before_1_37();
    for name in ["protokube", "channels"] {
        for arch in ["amd64", "arm64"] {
            let path = format!("/binaries/kops/{KOPS}/linux/{arch}/{name}");
            machine.downloads().publish(&path, format!("#!/bin/sh\n# {name}\n").as_bytes());
        }
    }
    let folder = machine.cluster.store.cluster_folder();
    fs::write(folder.join("kops-version.txt"), KOPS).unwrap();
    let mut derive = Command::new(example::agent());
    derive.env_clear().envs(machine.cluster.environment()).args(["config", "derive"]);
    derive.env("HTTPS_PROXY", "http://127.0.0.1:1");
    let derived = Ended::of(derive.args(["--config-base", CONFIG_BASE, "--instance-group", CONTROL_PLANE]));
    derived.with(0, &[]);
    fs::write(folder.join(pinned()), derived.stdout).unwrap();
    machine
}

fn pinned() -> String {
    format!("igconfig/control-plane/{CONTROL_PLANE}/nodeupconfig.yaml")
}

/// Converges with this value of `KOPS_AGENT_ADDONS`.
fn converge(machine: &Machine, addons: &str) {
    let mut agent = machine.agent("converge");
    agent.args(["--config-from", "nodeup-config"]).env("KOPS_AGENT_ADDONS", addons);
    Ended::of(&mut agent).with(0, &[]);
}

fn read(machine: &Machine, path: &str) -> Option<String> {
    fs::read_to_string(machine.root().join(path)).ok()
}

/// The flags of protokube; `None` if it does not run.
fn flags(machine: &Machine) -> Option<String> {
    let unit = read(machine, PROTOKUBE)?;
    unit.lines().find_map(|line| line.strip_prefix("ExecStart=/opt/kops/bin/protokube ")).map(str::to_owned)
}

#[test]
fn the_service_takes_the_place_of_protokubes_channels_and_labels_and_gives_it_back() {
    let machine = of_kops_1_35();
    let bootstrap = format!("{CONFIG_BASE}/addons/bootstrap-channel.yaml");
    let channels = format!("--channels={bootstrap}");
    converge(&machine, "false");
    let by_protokube = flags(&machine).unwrap();
    assert!(by_protokube.contains(&channels) && read(&machine, CHANNELS).is_some(), "{by_protokube}");
    assert_eq!(read(&machine, SERVICE), None);

    // Without gossip, protokube has nothing left to do.
    converge(&machine, "true");
    for path in [PROTOKUBE, CHANNELS, "opt/kops/bin/protokube", "etc/sysconfig/protokube"] {
        assert_eq!(read(&machine, path), None, "{path}");
    }
    assert!(read(&machine, SERVICE).unwrap().contains("addons run"));
    let settings: serde_json::Value = serde_json::from_str(&read(&machine, SETTINGS).unwrap()).unwrap();
    assert_eq!(settings["channels"], serde_json::json!([bootstrap]));
    assert!(settings["nodeName"].as_str().is_some_and(|name| !name.is_empty()), "{settings}");
    assert_eq!(settings["nodeLabels"]["node-role.kubernetes.io/control-plane"], "");

    // With gossip, protokube does only gossip.
    let config = machine.cluster.store.cluster_folder().join(pinned());
    edit(&config, "usesLegacyGossip: false", "usesLegacyGossip: true").unwrap();
    converge(&machine, "true");
    let gossip = flags(&machine).unwrap();
    assert!(gossip.contains("--gossip=true") && !gossip.contains("--channels"), "{gossip}");
    assert!(!gossip.contains("--bootstrap-master-node-labels"), "{gossip}");
    assert_eq!(read(&machine, CHANNELS), None);

    converge(&machine, "false");
    let both = flags(&machine).unwrap();
    assert!(both.contains("--gossip=true") && both.contains(&channels), "{both}");
    assert_eq!((read(&machine, SERVICE), read(&machine, SETTINGS)), (None, None));
    assert!(read(&machine, CHANNELS).is_some());
}

#[test]
fn a_configuration_that_names_no_channel_is_refused_where_the_service_is_asked_for() {
    let machine = of_kops_1_35();
    let config = machine.cluster.store.cluster_folder().join(pinned());
    edit(&config, &format!("channels:\n- {CONFIG_BASE}/addons/bootstrap-channel.yaml\n"), "").unwrap();
    let mut agent = machine.agent("plan");
    agent.args(["--config-from", "nodeup-config", "--addons"]);
    Ended::of(&mut agent).with(3, &["the list `channels`", "names no channel", "KOPS_AGENT_ADDONS=false"]);
}
