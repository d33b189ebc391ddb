//! What a store denies is not absent: nothing that an earlier run left is removed or changed because of it, and a run
//! says what it may not read and which permission it lacks.

#![allow(clippy::unwrap_used)]

mod example;

use std::fs;
use std::process::Command;

use example::{Ended, Machine};
use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE, NODES};

const FAILED: i32 = 1;
const DIFFERENT: i32 = 4;
const DOCKER_CONFIG: &str = "root/.docker/config.json";
const TOKENS: &str = "srv/kubernetes/kube-apiserver/known_tokens.csv";
const CONTAINERD: &str = "etc/containerd/config.toml";
const SECRETS: &str = "demo.example.com/secrets/";
const KEYSETS: &str = "demo.example.com/pki/";

/// A machine of a cluster that has passwords for registries: `{"auths":{}}`.
fn machine(group: &'static str) -> Machine {
    let machine = Machine::of(group);
    let secret = machine.cluster.store.cluster_folder().join("secrets/dockerconfig");
    fs::write(secret, r#"{"Data":"eyJhdXRocyI6e319"}"#).unwrap();
    machine
}

fn read(machine: &Machine, path: &str) -> String {
    fs::read_to_string(machine.root().join(path)).unwrap()
}

/// What systemd, the kubelet and others have been asked so far.
fn requests(machine: &Machine) -> String {
    read(machine, "var/lib/kops-agent/recorded/requests.txt")
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
fn what_was_changed_and_may_not_be_read_is_named_until_it_can_be_put_right() {
    let machine = machine(CONTROL_PLANE);
    machine.run("converge", &[]).with(0, &[]);
    let (right, files, asked) = (read(&machine, TOKENS), machine.files(), requests(&machine));
    machine.cluster.s3.forbid_below(&[SECRETS]);
    fs::write(machine.root().join(TOKENS), "changed").unwrap();
    fs::remove_file(machine.root().join(DOCKER_CONFIG)).unwrap();
    fs::write(machine.root().join(CONTAINERD), "").unwrap();
    for _ in 0..2 {
        let named = [
            "could not be put right",
            "known_tokens.csv: its content was changed, and cannot be written anew",
            "config.json: it is not there, and cannot be written now",
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
    let machine = Machine::of(NODES);
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
    let machine = Machine::of(NODES);
    let mut derive = Command::new(example::agent());
    derive.env_clear().envs(machine.cluster.environment()).args(["config", "derive"]);
    let derived = Ended::of(derive.args(["--config-base", CONFIG_BASE, "--instance-group", NODES]));
    let config = machine.cluster.store.cluster_folder().join("igconfig/node/nodes/nodeupconfig.yaml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(config, derived.stdout).unwrap();
    let as_kops_derived_it = ["--config-from", "nodeup-config"];
    machine.run("converge", &as_kops_derived_it).with(0, &[]);
    machine.cluster.s3.forbid_below(&[KEYSETS]);
    let again = machine.run("converge", &as_kops_derived_it);
    again.with(0, &[]);
    assert!(again.stdout.contains("Nothing to do") && !again.stderr.contains("403"), "{again:#?}");
    // To derive its configuration it needs the authority's certificate.
    machine.run("converge", &[]).with(FAILED, &["may not read now", "pki/private/kubernetes-ca"]);
}
