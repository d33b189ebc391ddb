//! The last good state of a machine. Runs compare with it and repair it while the wanted state is refused, cannot be
//! applied, or was begun and cannot be read again.

#![allow(clippy::unwrap_used)]

use crate::example;

use std::fs;
use std::io::{Read as _, Seek as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::example::{Ended, Machine};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_tests::digest::sha256_hex;
use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE, NODES, releases};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const FAILED: i32 = 1;
const CONFIGURATION: i32 = 3;
const DIFFERENT: i32 = 4;
const CONTAINERD: &str = "etc/containerd/config.toml";
const KUBELET: &str = "var/lib/kubelet/kubelet.conf";
const SCHEDULER: &str = "var/lib/kube-scheduler/kubeconfig";
const DOCKER: &str = "root/.docker/config.json";
const APPLIED: &str = "var/lib/kops-agent/applied.json";
const BEGUN: &str = "var/lib/kops-agent/begun.json";
const GROUP: &str = "instancegroup/nodes";
const ROLE: &str = "  role: Node\n";
const MORE_PODS: &str = "  kubelet: {maxPods: 99}\n  role: Node\n";

fn converged(group: &'static str) -> Machine {
    let machine = Machine::new(group);
    machine.run("converge", &[]).with(0, &[]);
    machine
}

/// Runs a verb while no program listens at the store's address.
fn gone(machine: &Machine, verb: &str, flags: &[&str]) -> Ended {
    let mut agent = machine.agent(verb);
    Ended::from_command(agent.env("S3_ENDPOINT", "http://127.0.0.1:1").arg("--store-timeout=0").args(flags))
}

fn read(machine: &Machine, path: &str) -> String {
    fs::read_to_string(machine.root().join(path)).unwrap()
}

fn write(machine: &Machine, path: &str, text: &str) {
    fs::write(machine.root().join(path), text).unwrap();
}

fn in_store(machine: &Machine, path: &str) -> PathBuf {
    machine.cluster.store.cluster_folder().join(path)
}

fn status(machine: &Machine) -> Ended {
    let mut agent = Command::new(example::agent());
    agent.env_clear().stdin(Stdio::null()).args(["status", "--root"]);
    Ended::from_command(agent.arg(machine.root()))
}

/// Changes the recorded state of the scratch root, for example how its units behave.
pub(crate) fn set(machine: &Machine, change: impl FnOnce(&mut Value)) {
    let path = "var/lib/kops-agent/recorded/state.json";
    let mut state: Value = serde_json::from_str(&read(machine, path)).unwrap();
    change(&mut state);
    write(machine, path, &state.to_string());
}

/// Makes kubelet fail to start while its configuration contains `text`.
pub(crate) fn refuse(machine: &Machine, text: &str) {
    let refusal = json!([{"unit": "kubelet.service", "path": format!("/{KUBELET}"), "text": text}]);
    set(machine, |state| state["refusals"] = refusal);
}

/// A node that has tried a new configuration and rolled it back.
fn rolled_back() -> Machine {
    let node = converged(NODES);
    refuse(&node, "maxPods: 99");
    node.cluster.edit(GROUP, ROLE, MORE_PODS).unwrap();
    node.run("converge", &[]).with(FAILED, &["rolled back to the previous configuration"]);
    node
}

#[test]
fn after_a_rollback_the_last_good_state_is_compared_with_and_mended() {
    let node = rolled_back();
    let (files, containerd, kubelet) = (node.files(), read(&node, CONTAINERD), read(&node, KUBELET));
    let clean = node.run("verify", &[]);
    clean.with(DIFFERENT, &["is not tried again", "last applied"]);
    assert!(clean.stdout.contains("Nothing to do") && !clean.stdout.contains("maxPods"), "{clean:#?}");

    write(&node, CONTAINERD, "");
    fs::remove_file(node.root().join("usr/local/bin/runc")).ok();
    let found = node.run("verify", &[]);
    found.with(DIFFERENT, &["is not tried again"]);
    assert!(found.stdout.contains("containerd/config.toml: content"), "{found:#?}");
    assert!(!found.stdout.contains("maxPods"), "drift is counted against the refused state: {found:#?}");
    node.run("verify", &["--repair"]).with(FAILED, &["is not tried again"]);
    assert_eq!(
        (node.files(), read(&node, CONTAINERD), read(&node, KUBELET)),
        (files, containerd, kubelet.clone())
    );
    let status = status(&node);
    status.with(DIFFERENT, &[]);
    for part in
        ["ROLLED BACK  at ", "repair drift from the last applied configuration", "changed      nothing"]
    {
        assert!(status.stdout.contains(part), "{part:?} is not in {status:#?}");
    }
    assert!(!status.stdout.contains("last run     FAILED"), "it is told twice: {status:#?}");

    // With `--retry-failed`, the machine is compared with the configuration that failed. If the store has
    // another configuration than the failed one, `verify --repair` applies it without this flag.
    let again = node.run("verify", &["--retry-failed"]);
    again.with(DIFFERENT, &[]);
    assert!(again.stdout.contains("maxPods: 99"), "{again:#?}");
    node.cluster.edit(GROUP, "{maxPods: 99}", "{maxPods: 98}").unwrap();
    node.run("verify", &["--repair"]).with(0, &[]);
    assert!(read(&node, KUBELET).contains("maxPods: 98"));
}

#[test]
fn a_repair_whose_change_cannot_be_prepared_mends_the_last_good_state() {
    let node = converged(NODES);
    let containerd = read(&node, CONTAINERD);
    let repository = node.downloads().url();
    node.cluster.edit("cluster-completed.spec", &repository, "http://127.0.0.1:1").unwrap();
    let hashes = node.folder().join("hashes");
    let of = |(path, bytes): (String, Vec<u8>)| format!("{}  http://127.0.0.1:1{path}\n", sha256_hex(&bytes));
    fs::write(&hashes, releases().stand_ins().unwrap().into_iter().map(of).collect::<String>()).unwrap();
    let flags = ["--download-timeout=0", "--asset-hashes", hashes.to_str().unwrap()];
    for verb in [&["converge"] as &[&str], &["verify", "--repair"]] {
        write(&node, CONTAINERD, "");
        fs::remove_file(node.root().join("usr/local/bin/kubelet")).unwrap();
        fs::remove_dir_all(node.root().join("var/cache/nodeup")).unwrap();
        let ended = node.run(verb[0], &[&verb[1..], &flags].concat());
        ended.with(FAILED, &["cannot download http://127.0.0.1:1/"]);
        assert_eq!(read(&node, CONTAINERD), containerd, "{ended:#?}");
        assert!(node.root().join("usr/local/bin/kubelet").exists(), "{ended:#?}");
    }
    let status = status(&node);
    assert!(status.stdout.contains("FAILED at") && status.stdout.contains("cannot download"), "{status:#?}");
}

#[test]
fn an_authority_that_is_unfit_in_the_store_keeps_nothing_from_being_mended() {
    let machine = converged(CONTROL_PLANE);
    let (files, containerd) = (machine.files(), read(&machine, CONTAINERD));
    let keyset = in_store(&machine, "pki/private/kubernetes-ca/keyset.yaml");
    let text = fs::read_to_string(&keyset).unwrap();
    let is_key = |line: &&str| line.contains("privateMaterial: ");
    let key = text.lines().find(is_key).unwrap().split_once("privateMaterial: ").unwrap().1;
    fs::write(&keyset, text.replace(key, &STANDARD.encode("no key"))).unwrap();
    for verb in [&["converge"] as &[&str], &["verify", "--repair"]] {
        write(&machine, CONTAINERD, "");
        fs::remove_file(machine.root().join(SCHEDULER)).unwrap();
        let ended = machine.run(verb[0], &verb[1..]);
        ended.with(CONFIGURATION, &["the certificate authority kubernetes-ca", "neither RSA nor EC"]);
        assert_eq!((machine.files(), read(&machine, CONTAINERD)), (files.clone(), containerd.clone()));
        assert!(read(&machine, SCHEDULER).contains("client-certificate-data"), "another one was issued");
    }
}

#[test]
fn an_item_that_was_deleted_from_its_keyset_leaves_its_own_file_only() {
    let machine = converged(CONTROL_PLANE);
    let (files, containerd) = (machine.files(), read(&machine, CONTAINERD));
    // The instance group is invalid, so the wanted configuration is unknown. The keysets are still readable.
    fs::write(in_store(&machine, "instancegroup/control-plane-eu-west-1a"), "spec: [").unwrap();
    for name in ["apiserver-aggregator-ca", "service-account"] {
        let keyset = in_store(&machine, &format!("pki/private/{name}/keyset.yaml"));
        let text = fs::read_to_string(&keyset).unwrap();
        let id = text.lines().find_map(|line| line.trim().strip_prefix("primaryId: ")).unwrap().to_owned();
        let id = id.trim_matches(|c| c == '"' || c == '\'');
        fs::write(&keyset, text.replace(id, "7")).unwrap();
    }
    write(&machine, CONTAINERD, "");
    let key = "srv/kubernetes/kube-controller-manager/service-account.key";
    let secret = read(&machine, key);
    let ended = machine.run("converge", &[]);
    ended.with(CONFIGURATION, &["keeps its last applied configuration"]);
    assert_eq!((machine.files(), read(&machine, CONTAINERD)), (files, containerd.clone()));
    assert!(!ended.stderr.contains(secret.lines().nth(1).unwrap()));

    let keys = ["srv/kubernetes/kube-controller-manager", "srv/kubernetes/kube-apiserver"];
    for folder in keys {
        fs::remove_file(machine.root().join(folder).join("service-account.key")).ok();
    }
    write(&machine, CONTAINERD, "");
    let named = ["service-account.key: it is missing", "is no longer in the state store"];
    machine.run("converge", &[]).with(CONFIGURATION, &named);
    assert_eq!(read(&machine, CONTAINERD), containerd, "all else is put right");
}

#[test]
fn a_rollback_of_the_last_good_state_keeps_the_refusal_of_the_newer_one() {
    use std::os::unix::fs::PermissionsExt as _;
    let node = rolled_back();
    // kubelet can no longer start. In addition, the mode of a folder needs a repair.
    refuse(&node, "");
    let directory = node.root().join("etc/kubernetes/manifests");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    write(&node, KUBELET, "");
    node.run("converge", &[]).with(FAILED, &["is not tried again", "rolling back"]);
    set(&node, |state| drop(state.as_object_mut().unwrap().remove("refusals")));
    node.run("converge", &[]).with(FAILED, &["is not tried again"]);
    assert!(!read(&node, KUBELET).contains("maxPods: 99"), "what was refused was tried again");
}

/// A node with an unfinished change. kubelet had to start for the change, and failed to start.
fn begun(change: impl FnOnce(&Machine)) -> Machine {
    let node = converged(NODES);
    refuse(&node, "");
    set(&node, |state| state["units"]["kubelet.service"]["running"] = false.into());
    node.cluster.edit(GROUP, ROLE, MORE_PODS).unwrap();
    change(&node);
    node.run("converge", &[]).with(FAILED, &["kubelet.service"]);
    assert!(read(&node, KUBELET).contains("maxPods: 99"));
    assert!(status(&node).stdout.contains("unfinished"));
    set(&node, |state| drop(state.as_object_mut().unwrap().remove("refusals")));
    node
}

fn kubelet_runs(node: &Machine) -> bool {
    let state: Value = serde_json::from_str(&read(node, "var/lib/kops-agent/recorded/state.json")).unwrap();
    state["units"]["kubelet.service"]["running"] == true
}

fn add_docker_config(machine: &Machine) {
    fs::write(in_store(machine, "secrets/dockerconfig"), r#"{"Data":"eyJhdXRocyI6e319"}"#).unwrap();
}

#[test]
fn a_change_that_was_begun_is_carried_on_while_the_store_is_gone() {
    let node = begun(add_docker_config);
    assert!(read(&node, DOCKER).contains("auths"));
    let ended = gone(&node, "converge", &[]);
    ended.with(FAILED, &["cannot be reached", "continues the unfinished change of an earlier run"]);
    assert!(read(&node, KUBELET).contains("maxPods: 99"), "it was turned back: {ended:#?}");
    assert!(read(&node, DOCKER).contains("auths") && kubelet_runs(&node), "{ended:#?}");
    let status = status(&node);
    assert!(!status.stdout.contains("unfinished"), "{status:#?}");
    // The configuration of the completed change is now the last applied configuration.
    write(&node, CONTAINERD, "");
    gone(&node, "verify", &["--repair"]).with(FAILED, &["cannot be reached"]);
    assert!(read(&node, KUBELET).contains("maxPods: 99") && !read(&node, CONTAINERD).is_empty());
    let again = node.run("converge", &[]);
    again.with(0, &[]);
    assert!(again.stdout.contains("Nothing to do"), "{again:#?}");
}

#[test]
fn a_change_that_was_begun_and_cannot_be_carried_on_is_left() {
    let node = begun(add_docker_config);
    // Docker's configuration file needs a secret of the store. Without this file, the machine looks as if the run was
    // killed before it wrote the file.
    fs::remove_file(node.root().join(DOCKER)).unwrap();
    for verb in [&["converge"] as &[&str], &["verify", "--repair"]] {
        let ended = gone(&node, verb[0], &verb[1..]);
        ended.with(
            FAILED,
            &["cannot be reached", "an unfinished change on this machine", "it stays unfinished"],
        );
        assert!(read(&node, KUBELET).contains("maxPods: 99") && !kubelet_runs(&node), "{ended:#?}");
    }
    // Without the saved state of the interrupted run, the change cannot be continued.
    fs::remove_file(node.root().join(BEGUN)).unwrap();
    gone(&node, "converge", &[]).with(FAILED, &["cannot be reached", "it stays unfinished"]);
    assert!(read(&node, KUBELET).contains("maxPods: 99") && !kubelet_runs(&node));
    node.run("converge", &[]).with(0, &[]);
    assert!(read(&node, DOCKER).contains("auths") && kubelet_runs(&node));
}

#[test]
fn a_run_killed_before_it_kept_its_applied_state_is_not_undone() {
    let node = converged(NODES);
    let older = read(&node, APPLIED);
    // The NodeupConfigHash does not cover secrets, so it stays the same.
    add_docker_config(&node);
    node.run("converge", &[]).with(0, &[]);
    let newer = read(&node, APPLIED);
    let mended = |node: &Machine| {
        write(node, CONTAINERD, "");
        let ended = gone(node, "converge", &[]);
        ended.with(FAILED, &["cannot be reached"]);
        assert!(read(node, DOCKER).contains("auths"), "the node was turned back: {ended:#?}");
        !read(node, CONTAINERD).is_empty()
    };
    write(&node, APPLIED, &older);
    assert!(!mended(&node), "what is older than the machine was applied");
    write(&node, BEGUN, &newer);
    assert!(mended(&node));
}

#[test]
fn an_error_of_the_last_applied_state_hides_no_other_error() {
    let machine = converged(CONTROL_PLANE);
    let key = machine.root().join("srv/kubernetes/kube-controller-manager/ca.key");
    fs::remove_file(&key).unwrap();
    fs::create_dir(&key).unwrap();
    for verb in [&["converge"] as &[&str], &["verify", "--repair"]] {
        let both = ["cannot be reached", "ca.key: a directory is in its place"];
        gone(&machine, verb[0], &verb[1..]).with(FAILED, &both);
    }
}

#[test]
fn a_reset_overwrites_the_texts_that_were_kept() {
    let node = converged(NODES);
    let mut applied = fs::File::open(node.root().join(APPLIED)).unwrap();
    let mut agent = Command::new(example::agent());
    agent.env_clear().stdin(Stdio::null()).args(["reset", "--yes", "--root"]).arg(node.root());
    Ended::from_command(&mut agent).with(0, &[]);
    let mut left = Vec::new();
    applied.rewind().unwrap();
    applied.read_to_end(&mut left).unwrap();
    assert!(!left.is_empty() && left.iter().all(|byte| *byte == 0), "{}", String::from_utf8_lossy(&left));
}

fn hash(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

/// A node whose user-data pins the configuration of its group, and that has converged. Also returns the path and the
/// text of the configuration's file.
fn pinned() -> (Machine, PathBuf, String) {
    let node = Machine::new(NODES);
    let mut derive = Command::new(example::agent());
    derive.env_clear().envs(node.cluster.environment()).args(["config", "derive"]);
    let derived = Ended::from_command(derive.args(["--config-base", CONFIG_BASE, "--instance-group", NODES]));
    derived.with(0, &[]);
    let config = in_store(&node, "igconfig/node/nodes/nodeupconfig.yaml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(&config, &derived.stdout).unwrap();
    let kube_env = node.cluster.store.kube_env(NODES);
    let boot = fs::read_to_string(&kube_env).unwrap();
    fs::write(&kube_env, format!("{boot}NodeupConfigHash: {}\n", hash(&derived.stdout))).unwrap();
    node.run("converge", &[]).with(0, &[]);
    (node, config, derived.stdout)
}

#[test]
fn a_file_that_is_no_configuration_supersedes_nothing() {
    let (node, config, text) = pinned();
    let containerd = read(&node, CONTAINERD);
    let half = text[..text.len() / 2].to_owned() + "\n\t{";
    let page = "<html>Please log in</html>";
    for spoilt in [page, "", "{}", &half] {
        fs::write(&config, spoilt).unwrap();
        write(&node, CONTAINERD, "");
        for verb in ["converge", "verify"] {
            let ended = node.run(verb, &[]);
            match spoilt == page {
                true => ended.with(
                    FAILED,
                    &["nodeupconfig.yaml: the answer is a web page", "Please log in", "captive portal"],
                ),
                false => ended.with(CONFIGURATION, &["nodeupconfig.yaml"]),
            }
            assert!(!ended.stdout.contains("Superseded"), "{ended:#?}");
            assert!(!ended.stderr.contains("replace this instance"), "{ended:#?}");
        }
        assert_eq!(read(&node, CONTAINERD), containerd, "what was last applied is put right");
        assert!(!status(&node).stdout.contains("superseded"), "{spoilt:?}");
    }
}

#[test]
fn a_node_is_superseded_by_a_cluster_spec_that_gave_its_configuration_before() {
    let (node, config, _) = pinned();
    let containerd = read(&node, CONTAINERD);
    fs::remove_file(&config).unwrap();
    node.run("converge", &["--on-hash-mismatch", "refuse"]).with(0, &[]);
    node.cluster.edit(GROUP, ROLE, MORE_PODS).unwrap();
    write(&node, CONTAINERD, "");
    node.run("converge", &["--on-hash-mismatch", "refuse"]).with(0, &["rolling-update"]);
    assert_eq!(read(&node, CONTAINERD), containerd);
    assert!(status(&node).stdout.contains("superseded   since"));
}

#[test]
fn a_cluster_spec_that_never_gave_the_configuration_supersedes_nothing() {
    let (node, config, text) = pinned();
    let other = format!("{text}# of another release\n");
    fs::write(&config, &other).unwrap();
    let kube_env = node.cluster.store.kube_env(NODES);
    let boot = fs::read_to_string(&kube_env).unwrap();
    fs::write(&kube_env, boot.replace(&hash(&text), &hash(&other))).unwrap();
    node.run("converge", &[]).with(0, &["gives another configuration than the pinned"]);
    fs::remove_file(&config).unwrap();
    node.run("converge", &["--on-hash-mismatch", "refuse"]).with(CONFIGURATION, &["(NodeupConfigHash)"]);
    assert!(!status(&node).stdout.contains("superseded"));
}
