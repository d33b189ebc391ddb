//! A denied file is not an absent file. Because of a denial, a run removes and changes nothing that an earlier run
//! left. The run names the file and the missing permission.

#![allow(clippy::unwrap_used)]

use crate::example;

use std::fs;
use std::process::Command;

use crate::example::{Ended, Machine};
use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE, NODES};

const FAILED: i32 = 1;
const DIFFERENT: i32 = 4;
const DOCKER_CONFIG: &str = "root/.docker/config.json";
const TOKENS: &str = "srv/kubernetes/kube-apiserver/known_tokens.csv";
const API_SERVER: &str = "etc/kubernetes/manifests/kube-apiserver.manifest";
const CONTAINERD: &str = "etc/containerd/config.toml";
const SECRETS: &str = "demo.example.com/secrets/";
const KEYSETS: &str = "demo.example.com/pki/";

/// A machine of a cluster whose store has the secret for registry logins. The secret has no logins
/// (`{"auths":{}}`).
fn machine(group: &'static str) -> Machine {
    let machine = Machine::new(group);
    let secret = machine.cluster.store.cluster_folder().join("secrets/dockerconfig");
    fs::write(secret, r#"{"Data":"eyJhdXRocyI6e319"}"#).unwrap();
    machine
}

fn read(machine: &Machine, path: &str) -> String {
    fs::read_to_string(machine.root().join(path)).unwrap()
}

/// All recorded requests, for example to systemd and kubelet.
fn requests(machine: &Machine) -> String {
    read(machine, "var/lib/kops-agent/recorded/requests.txt")
}

/// If `is_refusing` is true, containerd fails to start, so a run fails after it has written its files. Otherwise
/// containerd starts.
fn set_refusing(machine: &Machine, is_refusing: bool) {
    let file = machine.root().join("var/lib/kops-agent/recorded/state.json");
    let mut state: serde_json::Value = match fs::read(&file) {
        Ok(bytes) => serde_json::from_slice(&bytes).unwrap(),
        Err(_) => serde_json::json!({}),
    };
    let refusals = [serde_json::json!({"unit": "containerd.service", "path": "/etc/hostname", "text": ""})];
    state["refusals"] = serde_json::json!(refusals[..usize::from(is_refusing)]);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, state.to_string()).unwrap();
}

/// A machine whose first run has written its files and then failed.
fn first_run_failed(group: &'static str, is_denied: bool) -> Machine {
    let machine = machine(group);
    machine.cluster.s3.forbid_below(if is_denied { &[SECRETS] } else { &[] });
    set_refusing(&machine, true);
    machine.run("converge", &[]).with(FAILED, &["`systemctl start containerd.service` is refused"]);
    assert!(!machine.root().join("var/lib/kops-agent/applied.json").exists());
    set_refusing(&machine, false);
    machine
}

#[track_caller]
fn says(ended: &Ended, code: i32, parts: &[&str]) {
    ended.with(code, &[]);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in {ended:#?}");
    }
}

#[test]
fn secrets_that_are_denied_stay_as_they_are() {
    let machine = machine(CONTROL_PLANE);
    machine.run("converge", &[]).with(0, &[]);
    let before = (machine.files(), read(&machine, DOCKER_CONFIG), read(&machine, TOKENS), requests(&machine));
    assert!(before.1.contains("auths") && before.2.lines().count() > 5, "{before:?}");

    machine.cluster.s3.forbid_below(&[SECRETS]);
    let named = [
        "file /root/.docker/config.json stays as it is",
        "file /srv/kubernetes/kube-apiserver/known_tokens.csv stays as it is",
        "access denied (403)",
        "s3:GetObject on arn:aws:s3:::clusters.example.com/demo.example.com/secrets/dockerconfig",
    ];
    says(&machine.run("plan", &["--exit-code"]), 0, &named);
    says(&machine.run("converge", &[]), 0, &named);
    says(&machine.run("verify", &[]), 0, &named);
    let after = (machine.files(), read(&machine, DOCKER_CONFIG), read(&machine, TOKENS), requests(&machine));
    assert_eq!(after, before);
}

#[test]
fn changed_secret_files_are_named_until_the_store_permits_their_repair() {
    let machine = machine(CONTROL_PLANE);
    machine.run("converge", &[]).with(0, &[]);
    let (right, files, asked) = (read(&machine, TOKENS), machine.files(), requests(&machine));
    machine.cluster.s3.forbid_below(&[SECRETS]);
    fs::write(machine.root().join(TOKENS), "changed").unwrap();
    fs::remove_file(machine.root().join(DOCKER_CONFIG)).unwrap();
    fs::write(machine.root().join(CONTAINERD), "").unwrap();
    for _ in 0..2 {
        let named = [
            "could not be repaired",
            "known_tokens.csv: its content was changed and cannot be restored now",
            "config.json: it is missing and cannot be written now",
        ];
        says(&machine.run("converge", &[]), FAILED, &named);
        assert_ne!(read(&machine, CONTAINERD), "", "all else is put right");
    }
    assert_eq!(read(&machine, TOKENS), "changed");
    let restarted = requests(&machine).replace(&asked, "");
    assert!(!restarted.contains("kube-apiserver") && !restarted.contains("kubelet"), "{restarted}");
    let found = machine.run("verify", &[]);
    says(&found, DIFFERENT, &["known_tokens.csv: content", "config.json: gone"]);

    machine.cluster.s3.permit_all();
    machine.run("converge", &[]).with(0, &[]);
    assert_eq!((read(&machine, TOKENS), machine.files()), (right, files));
}

#[test]
fn a_secret_that_is_denied_on_first_boot_is_left_out_with_a_warning() {
    let machine = machine(NODES);
    machine.cluster.s3.forbid_below(&[SECRETS]);
    let named = [
        "the secret dockerconfig is left out",
        "s3:GetObject on arn:aws:s3:::clusters.example.com/demo.example.com/secrets/dockerconfig",
    ];
    says(&machine.run("converge", &[]), 0, &named);
    assert!(!machine.files().contains(&DOCKER_CONFIG.to_owned()));
    machine.cluster.s3.permit_all();
    machine.run("converge", &[]).with(0, &[]);
    assert!(machine.files().contains(&DOCKER_CONFIG.to_owned()));
}

#[test]
fn a_secret_that_the_store_does_not_list_is_absent_though_its_name_is_denied() {
    let machine = Machine::new(NODES);
    machine.cluster.s3.forbid("demo.example.com/secrets/dockerconfig");
    let converged = machine.run("converge", &[]);
    converged.with(0, &[]);
    assert!(!converged.stderr.contains("dockerconfig"), "{converged:#?}");
}

#[test]
fn a_keyset_that_is_denied_is_waited_for_and_takes_nothing_away() {
    let machine = machine(CONTROL_PLANE);
    machine.cluster.s3.forbid_below(&[KEYSETS]);
    let named = [
        "may not read now",
        "s3:GetObject on arn:aws:s3:::clusters.example.com/demo.example.com/pki/private/kubernetes-ca/keyset.yaml",
    ];
    says(&machine.run("converge", &[]), FAILED, &named);
    assert_eq!(machine.files(), [""; 0], "a first boot without keys wrote something");

    machine.cluster.s3.permit_all();
    machine.run("converge", &[]).with(0, &[]);
    let (files, containerd) = (machine.files(), read(&machine, CONTAINERD));
    machine.cluster.s3.forbid_below(&[KEYSETS]);
    fs::write(machine.root().join(CONTAINERD), "").unwrap();
    says(&machine.run("converge", &[]), FAILED, &named);
    assert_eq!((machine.files(), read(&machine, CONTAINERD)), (files, containerd));
}

#[test]
fn a_worker_may_not_read_keysets_and_needs_no_word_of_it() {
    let machine = Machine::new(NODES);
    let mut derive = Command::new(example::agent());
    derive.env_clear().envs(machine.cluster.environment()).args(["config", "derive"]);
    let derived = Ended::from_command(derive.args(["--config-base", CONFIG_BASE, "--instance-group", NODES]));
    let config = machine.cluster.store.cluster_folder().join("igconfig/node/nodes/nodeupconfig.yaml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(config, derived.stdout).unwrap();
    let as_kops_derived_it = ["--config-from", "nodeup-config"];
    machine.run("converge", &as_kops_derived_it).with(0, &[]);
    machine.cluster.s3.forbid_below(&[KEYSETS]);
    let again = machine.run("converge", &as_kops_derived_it);
    again.with(0, &[]);
    assert!(again.stdout.contains("Nothing to do") && !again.stderr.contains("may not read"), "{again:#?}");
    // The worker needs the authority's certificate to derive its configuration.
    machine.run("converge", &[]).with(FAILED, &["may not read now", "pki/private/kubernetes-ca"]);
}

#[test]
fn files_of_secrets_stay_if_the_first_run_failed_and_the_store_denies_them() {
    let machine = first_run_failed(CONTROL_PLANE, false);
    let before = (machine.files(), read(&machine, DOCKER_CONFIG), read(&machine, TOKENS));
    assert!(before.1.contains("auths") && before.2.lines().count() > 5, "{before:?}");
    machine.cluster.s3.forbid_below(&[SECRETS]);
    let named = [
        "file /root/.docker/config.json stays as it is",
        "file /srv/kubernetes/kube-apiserver/known_tokens.csv stays as it is",
    ];
    says(&machine.run("plan", &[]), 0, &named);
    says(&machine.run("converge", &[]), 0, &named);
    assert_eq!((read(&machine, DOCKER_CONFIG), read(&machine, TOKENS)), (before.1, before.2));
    let files = machine.files();
    let taken_away: Vec<_> = before.0.iter().filter(|file| !files.contains(file)).collect();
    assert_eq!(taken_away, [""; 0]);
}

#[test]
fn a_secret_that_is_denied_from_the_start_is_left_out_also_after_a_first_run_that_failed() {
    let machine = first_run_failed(NODES, true);
    says(&machine.run("converge", &[]), 0, &["the secret dockerconfig is left out"]);
    assert!(!machine.files().contains(&DOCKER_CONFIG.to_owned()));
}

#[test]
fn without_a_recorded_decision_denied_secrets_fail_the_run() {
    let machine = first_run_failed(CONTROL_PLANE, false);
    let record = machine.root().join("var/lib/kops-agent/record.json");
    let mut older: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    assert_ne!(older.as_object_mut().unwrap().remove("decided"), None);
    fs::write(&record, older.to_string()).unwrap();
    let tokens = read(&machine, TOKENS);
    machine.cluster.s3.forbid_below(&[SECRETS]);
    says(&machine.run("converge", &[]), FAILED, &["access denied (403)", "s3:GetObject on"]);
    assert_eq!(read(&machine, TOKENS), tokens);
    machine.cluster.s3.permit_all();
    machine.run("converge", &[]).with(0, &[]);
}

#[test]
fn a_take_over_with_denied_secrets_fails_and_changes_no_file() {
    let machine = machine(CONTROL_PLANE);
    machine.run("converge", &[]).with(0, &[]);
    for file in ["record.json", "applied.json", "facts.json"] {
        let _ = fs::remove_file(machine.root().join("var/lib/kops-agent").join(file));
    }
    let before = (machine.files(), read(&machine, TOKENS), read(&machine, API_SERVER), requests(&machine));
    machine.cluster.s3.forbid_below(&[SECRETS]);
    for verb in ["plan", "converge"] {
        says(&machine.run(verb, &[]), FAILED, &["access denied (403)", "s3:GetObject on"]);
    }
    let after = (machine.files(), read(&machine, TOKENS), read(&machine, API_SERVER), requests(&machine));
    assert_eq!(after, before);
    machine.cluster.s3.permit_all();
    machine.run("converge", &[]).with(0, &[]);
}

#[test]
fn a_file_that_is_denied_from_the_start_is_done_without_until_it_has_been_read() {
    let machine = machine(CONTROL_PLANE);
    let denied = ["demo.example.com/config"];
    machine.cluster.s3.forbid_below(&denied);
    let named = [
        "this run continues as if this file did not exist: s3://clusters.example.com/demo.example.com/config:",
    ];
    says(&machine.run("converge", &[]), 0, &named);
    says(&machine.run("converge", &[]), 0, &named);
    machine.cluster.s3.permit_all();
    fs::write(machine.root().join(CONTAINERD), "").unwrap();
    machine.run("converge", &[]).with(0, &[]);
    machine.cluster.s3.forbid_below(&denied);
    says(
        &machine.run("converge", &[]),
        FAILED,
        &["access denied (403)", "keeps its last applied configuration"],
    );
}
