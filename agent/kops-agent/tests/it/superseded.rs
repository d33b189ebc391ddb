//! A machine whose cluster has another configuration by now, or whose store is gone, is still repaired to its last
//! applied state.

#![allow(clippy::unwrap_used)]

use crate::example;

use std::fs;
use std::process::{Command, Stdio};

use crate::example::{Ended, Machine};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE, NODES};
use sha2::{Digest, Sha256};

const FAILED: i32 = 1;
const CONFIGURATION: i32 = 3;
const DIFFERENT: i32 = 4;
const CONTAINERD: &str = "etc/containerd/config.toml";

pub(crate) fn hash(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

/// A converged machine whose user-data pins the configuration of its group in the store. Also returns the path of the
/// configuration.
pub(crate) fn pinned(group: &'static str, role: &str) -> (Machine, String) {
    let machine = Machine::new(group);
    let path = pin(&machine, group, role);
    machine.run("converge", &[]).with(0, &[]);
    (machine, path)
}

/// Makes a machine's user-data pin the configuration of its group in the store. Returns the path of the
/// configuration.
pub(crate) fn pin(machine: &Machine, group: &'static str, role: &str) -> String {
    let mut derive = Command::new(example::agent());
    derive.env_clear().envs(machine.cluster.environment()).args(["config", "derive"]);
    let derived = Ended::from_command(derive.args(["--config-base", CONFIG_BASE, "--instance-group", group]));
    derived.with(0, &[]);
    let path = format!("igconfig/{role}/{group}/nodeupconfig.yaml");
    write_config(machine, &path, &derived.stdout);
    let kube_env = machine.cluster.store.kube_env(group);
    let boot = fs::read_to_string(&kube_env).unwrap();
    fs::write(&kube_env, format!("{boot}NodeupConfigHash: {}\n", hash(&derived.stdout))).unwrap();
    path
}

fn write_config(machine: &Machine, path: &str, text: &str) {
    let file = machine.cluster.store.cluster_folder().join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

/// Changes the store as `kops update cluster` does before the rolling update. Returns the new hash.
pub(crate) fn update(machine: &Machine, path: &str) -> String {
    let file = machine.cluster.store.cluster_folder().join(path);
    let text = format!("{}# the next one\n", fs::read_to_string(&file).unwrap());
    fs::write(&file, &text).unwrap();
    hash(&text)
}

pub(crate) fn status(machine: &Machine, output: &str) -> Ended {
    let mut agent = Command::new(example::agent());
    agent.env_clear().stdin(Stdio::null()).args(["status", "-o", output, "--root"]);
    Ended::from_command(agent.arg(machine.root()))
}

pub(crate) fn read(machine: &Machine, path: &str) -> String {
    fs::read_to_string(machine.root().join(path)).unwrap()
}

fn requests(machine: &Machine) -> String {
    read(machine, "var/lib/kops-agent/recorded/requests.txt")
}

/// The last applied state may come from another machine, because an image may be a copy of a node's disk. It may also
/// come from a warm pool, where the instance had not joined the cluster yet.
#[test]
fn the_last_applied_state_of_another_machine_is_not_used() {
    for (old, new) in [
        ("i-0d3a0c0ffee000002", "i-0d3a0c0ffee000003"),
        ("targetLifecycleState: InService", "targetLifecycleState: Warmed:Stopped"),
    ] {
        let (node, path) = pinned(NODES, "node");
        update(&node, &path);
        fs::remove_file(node.root().join(CONTAINERD)).unwrap();
        let facts = node.cluster.store.facts(NODES);
        let text = fs::read_to_string(&facts).unwrap();
        assert!(text.contains(old));
        fs::write(&facts, text.replace(old, new)).unwrap();
        let ended = node.run("converge", &[]);
        ended.with(CONFIGURATION, &["NodeupConfigHash", "was for another machine"]);
        assert!(!node.root().join(CONTAINERD).exists(), "{ended:#?}");
    }
}

#[test]
fn a_node_that_is_superseded_is_well_and_is_still_put_right() {
    for (group, role, kubeconfig) in [
        (NODES, "node", "var/lib/kubelet/kubeconfig"),
        (CONTROL_PLANE, "control-plane", "var/lib/kube-scheduler/kubeconfig"),
    ] {
        let (node, path) = pinned(group, role);
        let (files, containerd) = (node.files(), read(&node, CONTAINERD));
        let by = update(&node, &path);
        node.run("plan", &[]).with(CONFIGURATION, &["NodeupConfigHash"]);

        let looked = node.run("verify", &[]);
        looked.with(0, &[]);
        assert!(looked.stdout.contains("Superseded: ") && looked.stdout.contains(&by), "{looked:#?}");
        let json = node.run("verify", &["-o", "json"]);
        let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(json["superseded"], by.as_str());

        fs::write(node.root().join(CONTAINERD), "").unwrap();
        fs::remove_file(node.root().join(kubeconfig)).unwrap();
        let found = node.run("verify", &[]);
        found.with(DIFFERENT, &[]);
        assert!(found.stdout.contains("containerd/config.toml: content"), "{found:#?}");
        node.run("verify", &["--repair"]).with(0, &[]);
        assert_eq!((node.files(), read(&node, CONTAINERD)), (files.clone(), containerd.clone()));
        assert!(read(&node, kubeconfig).contains("client-certificate-data"), "another one was issued");

        fs::write(node.root().join(CONTAINERD), "").unwrap();
        node.run("converge", &[]).with(0, &["rolling-update"]);
        assert_eq!(read(&node, CONTAINERD), containerd);
        let again = node.run("converge", &[]);
        again.with(0, &[]);
        assert!(again.stdout.contains("Nothing to do"), "{again:#?}");

        let text = status(&node, "text");
        text.with(0, &[]);
        assert!(
            text.stdout.contains("superseded   since ") && text.stdout.starts_with("converged"),
            "{text:#?}"
        );
        let json: serde_json::Value = serde_json::from_str(&status(&node, "json").stdout).unwrap();
        assert_eq!(json["superseded"]["by"], by.as_str());
        assert!(status(&node, "prometheus").stdout.contains("\nkops_agent_superseded 1\n"));

        // After the old configuration is back in the store, the node is no longer superseded.
        let file = node.cluster.store.cluster_folder().join(&path);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("# the next one\n", "")).unwrap();
        node.run("converge", &[]).with(0, &[]);
        assert!(status(&node, "prometheus").stdout.contains("\nkops_agent_superseded 0\n"));
    }
}

#[test]
fn a_machine_that_never_converged_is_not_superseded() {
    let (node, path) = pinned(NODES, "node");
    update(&node, &path);
    fs::remove_dir_all(node.root()).unwrap();
    fs::create_dir(node.root()).unwrap();
    node.run("converge", &[]).with(CONFIGURATION, &["NodeupConfigHash"]);
    assert_eq!(node.files(), [""; 0]);
}

#[test]
fn user_data_for_another_configuration_is_not_superseded() {
    let (node, path) = pinned(NODES, "node");
    update(&node, &path);
    let kube_env = node.cluster.store.kube_env(NODES);
    let boot = fs::read_to_string(&kube_env).unwrap();
    let (before, _) = boot.split_once("NodeupConfigHash: ").unwrap();
    fs::write(&kube_env, format!("{before}NodeupConfigHash: {}\n", hash("newer than the file"))).unwrap();
    node.run("verify", &[]).with(CONFIGURATION, &["NodeupConfigHash"]);
}

/// If the store does not answer, a run repairs the last applied state, and still reports that the store is
/// unreachable. This machine has the authority's key, so the run can issue certificates.
#[test]
fn without_the_store_the_last_applied_state_is_repaired() {
    let machine = Machine::new(CONTROL_PLANE);
    machine.run("converge", &[]).with(0, &[]);
    let (files, containerd) = (machine.files(), read(&machine, CONTAINERD));
    let gone = |verb: &str, flags: &[&str]| {
        let mut agent = machine.agent(verb);
        Ended::from_command(
            agent.env("S3_ENDPOINT", "http://127.0.0.1:1").arg("--store-timeout=0").args(flags),
        )
    };
    let asked = requests(&machine);
    gone("converge", &[]).with(FAILED, &["cannot be reached", "keeps its last applied configuration"]);
    assert_eq!(requests(&machine), asked, "something was restarted for nothing");

    let kubeconfig = "var/lib/kube-scheduler/kubeconfig";
    fs::write(machine.root().join(CONTAINERD), "").unwrap();
    fs::remove_file(machine.root().join(kubeconfig)).unwrap();
    let found = gone("verify", &[]);
    found.with(FAILED, &["cannot be reached", "last applied"]);
    assert!(found.stdout.contains("Plan: "), "{found:#?}");
    assert_eq!(read(&machine, CONTAINERD), "", "a look changes nothing");
    gone("verify", &["--repair"]).with(FAILED, &["cannot be reached"]);
    assert_eq!((machine.files(), read(&machine, CONTAINERD)), (files.clone(), containerd));
    assert!(read(&machine, kubeconfig).contains("client-certificate-data"));

    let tokens = "srv/kubernetes/kube-apiserver/known_tokens.csv";
    fs::remove_file(machine.root().join(tokens)).unwrap();
    gone("converge", &[]).with(FAILED, &["known_tokens.csv: it is missing and cannot be written now"]);
    machine.run("converge", &[]).with(0, &[]);
    assert_eq!(machine.files(), files);
    let again = machine.run("converge", &[]);
    assert!(again.stdout.contains("Nothing to do"), "{again:#?}");
}

#[test]
fn the_last_applied_state_is_readable_by_root_only_and_has_no_secret() {
    use std::os::unix::fs::PermissionsExt as _;
    let machine = Machine::new(CONTROL_PLANE);
    machine.run("converge", &[]).with(0, &[]);
    let path = "var/lib/kops-agent/applied.json";
    let text = read(&machine, path);
    assert_eq!(fs::metadata(machine.root().join(path)).unwrap().permissions().mode() & 0o777, 0o600);
    for secret in ["PRIVATE KEY", kops_agent_tests::example_keys::TOKEN_MARK] {
        assert!(!text.contains(secret), "{secret} is in it");
    }
}
