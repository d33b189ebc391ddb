//! A control plane takes the three steps of docs/rotate.md for `service-account` by hand: create, promote, distrust.

use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_tests::example_keys::{DISTRUSTED, Keyset, edit_keyset};
use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE};
use serde_yaml::Value;

use crate::example::{Ended, Machine, agent, keysets};
use crate::superseded::{pinned, read, status};

const NAME: &str = "service-account";
const PUBLIC_KEYS: &str = "srv/kubernetes/kube-apiserver/service-account.pub";
const PRIVATE_KEYS: [&str; 2] = [
    "srv/kubernetes/kube-apiserver/service-account.key",
    "srv/kubernetes/kube-controller-manager/service-account.key",
];

/// Changes the keyset in the store, and then the configuration of the control planes like `kops update cluster --yes`.
fn change_keyset(node: &Machine, change: impl FnOnce(&mut Value)) {
    let store = &node.cluster.store;
    let file = store.cluster_folder().join(format!("pki/private/{NAME}/keyset.yaml"));
    edit_keyset(&file, change).unwrap();
    let mut derive = Command::new(agent());
    derive.env_clear().envs(node.cluster.environment()).args(["config", "derive"]);
    derive.args(["--config-base", CONFIG_BASE, "--instance-group", CONTROL_PLANE]);
    let derived = Ended::from_command(&mut derive);
    derived.with(0, &[]);
    store.write_nodeup_config(CONTROL_PLANE, &derived.stdout).unwrap();
}

/// Converges to the current configuration.
#[track_caller]
fn follow(node: &Machine) {
    node.run("converge", &["--follow"]).with(0, &[]);
    let status = status(node, "text");
    assert!(status.stdout.starts_with("converged"), "{status:#?}");
}

/// Asserts that kube-apiserver and kube-controller-manager sign with `signing`, and that kube-apiserver accepts only the
/// tokens that `trusted` have signed.
#[track_caller]
fn has_keys(node: &Machine, signing: &Keyset, trusted: &[&Keyset]) {
    for file in PRIVATE_KEYS {
        assert!(read(node, file).trim() == signing.private_key.trim(), "{file} has another key");
    }
    let file = read(node, PUBLIC_KEYS);
    let keys: Vec<&str> = file.split_inclusive("-----END RSA PUBLIC KEY-----\n").collect();
    assert_eq!(keys.len(), trusted.len(), "{file}");
    for (key, keyset) in keys.iter().zip(trusted) {
        let (key, certificate) = (der(key), der(&keyset.certificate));
        let is_of_certificate = certificate.windows(key.len()).any(|part| part == key);
        assert!(is_of_certificate, "{PUBLIC_KEYS} has another key than {}: {file}", keyset.id);
    }
}

fn der(pem: &str) -> Vec<u8> {
    let text: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    STANDARD.decode(text).unwrap()
}

#[test]
fn a_control_plane_follows_and_takes_the_next_key_of_service_accounts() {
    let (node, _) = pinned(CONTROL_PLANE, "control-plane");
    let old = keysets().iter().find(|keyset| keyset.name == NAME).unwrap();
    let new = &Keyset::make(NAME, old.id + 1).unwrap();
    has_keys(&node, old, &[old]);

    let made: Value = serde_yaml::from_str(&new.yaml()).unwrap();
    let created = made["spec"]["keys"][0].clone();
    change_keyset(&node, |spec| spec["keys"].as_sequence_mut().unwrap().push(created));
    follow(&node);
    has_keys(&node, old, &[old, new]);

    change_keyset(&node, |spec| spec["primaryId"] = new.id.to_string().into());
    follow(&node);
    has_keys(&node, new, &[old, new]);

    change_keyset(&node, |spec| spec["keys"][0]["distrustTimestamp"] = DISTRUSTED.into());
    follow(&node);
    has_keys(&node, new, &[new]);
}
