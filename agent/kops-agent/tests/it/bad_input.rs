//! Bad input of each kind fails with a clear error before anything changes.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::example::apart::with_mounts;
use crate::example::{Ended, Machine, keysets};
use kops_agent_tests::downloads::Fault;
use kops_agent_tests::example_cluster::edit;
use kops_agent_tests::example_keys::Keyset;
use kops_agent_tests::example_store::{CLUSTER, CONFIG_BASE, CONTROL_PLANE, NODES};

const FAILED: i32 = 1;
const CONFIGURATION: i32 = 3;

const KUBELET: &str = "/release/v1.34.2/bin/linux/arm64/kubelet";

/// Asserts that `converge` fails with the exit code `code` and the messages `parts`, and writes nothing.
#[track_caller]
fn refused(machine: &Machine, flags: &[&str], code: i32, parts: &[&str]) {
    refused_as(machine, machine.agent("converge").args(flags), code, parts);
}

#[track_caller]
fn refused_as(machine: &Machine, agent: &mut Command, code: i32, parts: &[&str]) {
    Ended::from_command(agent).with(code, parts);
    assert_eq!(machine.files(), [""; 0], "something was written");
}

#[test]
fn no_store() {
    let node = Machine::new(NODES);
    refused_as(
        &node,
        &mut node.agent_with_store("converge", "file:///no/such/store"),
        CONFIGURATION,
        &["file:///no/such/store/cluster-completed.spec", "does not exist"],
    );
}

#[test]
fn a_store_without_a_server() {
    let node = Machine::new(NODES);
    let mut agent = node.agent("converge");
    agent.env("S3_ENDPOINT", "http://127.0.0.1:1").args(["--store-timeout", "1"]);
    let start = Instant::now();
    let spec = format!("{CONFIG_BASE}/cluster-completed.spec: the store cannot be reached");
    refused_as(&node, &mut agent, FAILED, &[&spec, "refused", "attempts in", "check the network"]);
    assert!(start.elapsed() < Duration::from_secs(50), "{:?}", start.elapsed());
}

#[test]
fn wrong_bucket() {
    let node = Machine::new(NODES);
    refused_as(
        &node,
        &mut node.agent_with_store("converge", "s3://no-such-bucket/demo.example.com"),
        CONFIGURATION,
        &["s3://no-such-bucket/demo.example.com", "there is no bucket \"no-such-bucket\""],
    );
}

#[test]
fn keys_that_the_store_refuses() {
    let node = Machine::new(NODES);
    let ended = Ended::from_command(node.agent("converge").env("S3_SECRET_ACCESS_KEY", "another"));
    ended.with(FAILED, &["cluster-completed.spec", "SignatureDoesNotMatch"]);
    assert!(!ended.stderr.contains("another"), "{ended:#?}");
}

#[test]
fn a_file_that_this_machine_may_not_read() {
    let node = Machine::new(NODES);
    node.cluster.s3.forbid(&format!("{CLUSTER}/instancegroup/nodes"));
    refused(&node, &[], FAILED, &[&format!("{CONFIG_BASE}/instancegroup/nodes"), "access denied (403)"]);
}

#[test]
fn no_such_instance_group() {
    let node = Machine::new(NODES);
    edit(&node.cluster.store.kube_env(NODES), "InstanceGroupName: nodes", "InstanceGroupName: workers")
        .unwrap();
    refused(&node, &[], CONFIGURATION, &["instancegroup/workers", CONTROL_PLANE, NODES]);
}

#[test]
fn a_spec_that_is_no_yaml() {
    let node = Machine::new(NODES);
    let spec = node.cluster.store.cluster_folder().join("cluster-completed.spec");
    fs::write(spec, "spec: [unclosed\n  b: {").unwrap();
    refused(&node, &[], CONFIGURATION, &[&format!("{CONFIG_BASE}/cluster-completed.spec"), "YAML"]);
}

#[test]
fn a_field_of_the_wrong_type() {
    let node = Machine::new(NODES);
    node.cluster
        .edit(
            "cluster-completed.spec",
            "    allocateNodeCIDRs: true\n    attach",
            "    allocateNodeCIDRs: 7\n    attach",
        )
        .unwrap();
    refused(
        &node,
        &[],
        CONFIGURATION,
        &[&format!("{CONFIG_BASE}/cluster-completed.spec"), "spec.kubeControllerManager.allocateNodeCIDRs"],
    );
}

#[test]
fn a_nodeupconfig_with_another_hash() {
    let node = Machine::new(NODES);
    let config = node.cluster.store.cluster_folder().join("igconfig/node/nodes/nodeupconfig.yaml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(config, "KubernetesVersion: 1.34.2\n").unwrap();
    let boot = node.cluster.store.kube_env(NODES);
    let pinned = "NodeupConfigHash: 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
    edit(&boot, "InstanceGroupRole: Node\n", &format!("InstanceGroupRole: Node\n{pinned}\n")).unwrap();
    for mode in ["auto", "nodeup-config"] {
        refused(
            &node,
            &["--config-from", mode],
            CONFIGURATION,
            &["igconfig/node/nodes/nodeupconfig.yaml", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="],
        );
    }
}

#[test]
fn a_download_with_another_hash() {
    let node = Machine::new(NODES);
    node.downloads().break_path(KUBELET, Fault::OtherBytes);
    refused(&node, &[], FAILED, &[KUBELET, "SHA-256"]);
    assert!(node.cached().iter().all(|file| !file.ends_with("kubelet")), "{:?}", node.cached());
}

#[test]
fn a_mirror_that_serves_a_page_for_people() {
    let node = Machine::new(NODES);
    node.downloads().break_path(KUBELET, Fault::HtmlPage);
    refused(&node, &[], FAILED, &[KUBELET]);
    assert!(node.cached().iter().all(|file| !file.ends_with("kubelet")), "{:?}", node.cached());
}

#[test]
fn a_mirror_that_serves_a_page_for_people_in_the_place_of_a_hash() {
    let node = Machine::new(NODES);
    node.downloads().break_path(&format!("{KUBELET}.sha256"), Fault::HtmlPage);
    refused(&node, &[], CONFIGURATION, &[KUBELET, "--asset-hashes"]);
}

/// A later request may succeed, so a busy mirror is no configuration error.
#[test]
fn a_mirror_that_is_too_busy_to_tell_a_hash() {
    let node = Machine::new(NODES);
    for status in [407, 429, 503] {
        node.downloads().break_path(&format!("{KUBELET}.sha256"), Fault::Status(status));
        refused(&node, &["--store-timeout", "1"], FAILED, &[KUBELET, &status.to_string()]);
    }
}

#[test]
fn a_mirror_that_stops_half_way() {
    let node = Machine::new(NODES);
    node.downloads().break_path(KUBELET, Fault::StopsHalfway);
    refused(&node, &["--download-timeout", "1"], FAILED, &[KUBELET, "the next run continues from there"]);

    node.downloads().mend_path(KUBELET);
    node.run("converge", &[]).with(0, &[]);
    assert!(node.files().contains(&"usr/local/bin/kubelet".to_owned()), "{:?}", node.files());
}

#[test]
fn a_root_that_cannot_be_written() {
    let mut node = Machine::new(NODES);
    let file = node.root().join("a-file");
    fs::write(&file, "").unwrap();
    node.set_root(file);
    node.run("converge", &[]).with(FAILED, &["a-file"]);
}

/// Runs in its own mount namespace. The root is a file system with too little space first, and with enough space
/// later.
#[test]
fn a_full_disk() {
    let node = Machine::new(NODES);
    let script = r#"
        mount -t tmpfs -o size=400k small "$ROOT" || exit 99
        "$@" 2>"$SAID"; echo "first $?"
        find "$ROOT/usr" "$ROOT/etc" -type f 2>/dev/null
        mount -o remount,size=64m "$ROOT" || exit 99
        "$@"; echo "second $?"
    "#;
    let said = node.folder().join("said");
    let Some(mut run) = with_mounts(&node.agent("converge"), script) else { return };
    let ended = Ended::from_command(run.env("ROOT", node.root()).env("SAID", &said));

    ended.with(0, &[]);
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines[0], "first 1", "{ended:#?}");
    assert!(lines[1].starts_with("Converged: "), "a full disk left half a machine: {ended:#?}");
    assert_eq!(lines.last(), Some(&"second 0"), "{ended:#?}");
    let said = fs::read_to_string(said).unwrap();
    assert!(said.contains("not enough disk space") && said.contains("free some space"), "{said}");
}

#[test]
fn no_ca_bundle() {
    let node = Machine::new(NODES);
    let mut agent = node.agent("converge");
    agent.env("S3_ENDPOINT", "https://127.0.0.1:1").env("SSL_CERT_FILE", "/no/such/bundle");
    refused_as(&node, &mut agent, FAILED, &["/no/such/bundle", "SSL_CERT_FILE"]);
}

#[test]
fn no_ca_bundle_for_the_downloads() {
    let node = Machine::new(NODES);
    let mirror = node.downloads().url();
    node.cluster.edit("cluster-completed.spec", &mirror, "https://127.0.0.1:1").unwrap();
    let mut agent = node.agent("converge");
    agent.env("SSL_CERT_FILE", "/no/such/bundle");
    refused_as(&node, &mut agent, FAILED, &["hashes of downloads", "no CA bundle", "/no/such/bundle"]);
}

#[test]
fn an_unsupported_kubernetes() {
    let node = Machine::new(NODES);
    let (ours, old) = ("kubernetesVersion: 1.34.2", "kubernetesVersion: 1.28.2");
    node.cluster.edit("cluster-completed.spec", ours, old).unwrap();
    refused(&node, &[], CONFIGURATION, &["spec.kubernetesVersion", "1.28.2", "supported are 1.32 and newer"]);
}

#[test]
fn an_unknown_distribution() {
    let node = Machine::new(NODES);
    edit(&node.cluster.store.facts(NODES), "id: ubuntu", "id: hannah-montana").unwrap();
    refused(&node, &[], CONFIGURATION, &["hannah-montana"]);
}

#[test]
fn an_unsupported_architecture() {
    let node = Machine::new(NODES);
    edit(&node.cluster.store.facts(NODES), "arch: arm64", "arch: riscv64").unwrap();
    refused(&node, &[], CONFIGURATION, &["riscv64", "amd64", "arm64"]);
}

/// Replaces the store's keyset that has the name of `keyset`.
fn replace(machine: &Machine, keyset: &Keyset) {
    let path = format!("pki/private/{}/keyset.yaml", keyset.name);
    fs::write(machine.cluster.store.cluster_folder().join(path), keyset.yaml()).unwrap();
}

#[test]
fn an_expired_authority() {
    let control_plane = Machine::new(CONTROL_PLANE);
    replace(&control_plane, &Keyset::make_valid("kubernetes-ca", 99, 2016..2017).unwrap());
    // The clock may be wrong now and right later, so the exit code allows a retry.
    refused(&control_plane, &[], FAILED, &["kubernetes-ca", "expired", "clock is right"]);
}

#[test]
fn an_authority_whose_key_is_another() {
    let control_plane = Machine::new(CONTROL_PLANE);
    let of = |name| keysets().iter().find(|keyset| keyset.name == name).unwrap().clone();
    let (mut authority, other) = (of("kubernetes-ca"), of("service-account"));
    authority.private_key = other.private_key;
    replace(&control_plane, &authority);
    refused(&control_plane, &[], CONFIGURATION, &["kubernetes-ca", "key"]);
}
