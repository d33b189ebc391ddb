//! `config assets` lists everything that the nodes of the example cluster need, and asks the servers for files and images.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;

use kops_agent_tests::downloads::Fault;
use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE, NODES};
use kops_agent_tests::loopback::LoopbackServer;
use kops_agent_tests::registry::{self, Images};
use serde_json::{Value, json};

use crate::example::{Ended, Machine, agent};
use crate::superseded::pin;

const CONVERGED: i32 = 0;
const FAILED: i32 = 1;
const USAGE: i32 = 2;
const CONFIGURATION: i32 = 3;
const DIFFERENT: i32 = 4;
const ADDON: &str = "addons/kops-controller.addons.k8s.io/k8s-1.16.yaml";
/// An object of an add-on that has an image.
const DAEMON_SET: &str = "---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a, namespace: kube-system}\n\
                          spec: {template: {spec: {containers: [{name: a, image: 'example.com/kops-controller:1'}]}}}\n";

/// The example cluster with the hashes of its downloads, as `kops update cluster --yes` writes them, and with an image of an add-on.
fn cluster() -> Machine {
    let machine = Machine::new(NODES);
    pin(&machine, CONTROL_PLANE, "control-plane");
    pin(&machine, NODES, "node");
    let addon = machine.cluster.store.cluster_folder().join(ADDON);
    fs::write(&addon, fs::read_to_string(&addon).unwrap() + DAEMON_SET).unwrap();
    machine
}

pub(crate) fn command(machine: &Machine, flags: &[&str]) -> Command {
    let mut command = Command::new(agent());
    command.env_clear().envs(machine.cluster.environment()).env("HTTPS_PROXY", "http://127.0.0.1:1");
    command.args(["config", "assets", "--config-base", CONFIG_BASE]).args(flags);
    command
}

fn assets(machine: &Machine, flags: &[&str]) -> Ended {
    Ended::from_command(&mut command(machine, flags))
}

fn listed(machine: &Machine) -> Vec<Value> {
    let ended = assets(machine, &["-o", "json"]);
    ended.with(CONVERGED, &[]);
    assert_eq!(ended.stderr, "");
    let list: Value = serde_json::from_str(&ended.stdout).unwrap();
    list["items"].as_array().unwrap().clone()
}

/// The only item of this kind whose name contains `name`.
#[track_caller]
fn find<'a>(list: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_one = |item: &&Value| item["kind"] == kind && item["name"].as_str().unwrap().contains(name);
    let found: Vec<&Value> = list.iter().filter(is_one).collect();
    let [item] = found[..] else { panic!("{kind} {name}: {found:#?}") };
    item
}

#[test]
fn files_images_and_packages_of_all_groups_are_listed() {
    let machine = cluster();
    let list = listed(&machine);
    // The control plane runs Debian on amd64, and the nodes run Ubuntu on arm64.
    for (group, arch) in [(CONTROL_PLANE, "amd64"), (NODES, "arm64")] {
        for name in
            [format!("/linux/{arch}/kubelet"), format!("runc.{arch}"), format!("linux-{arch}-v1.7.1.tgz")]
        {
            let file = find(&list, "file", &name);
            assert_eq!(file["instanceGroups"], json!([group]), "{file}");
            assert_eq!(file["architectures"], json!([arch]), "{file}");
            assert_eq!(file["sha256"].as_str().map(str::len), Some(64), "{file}");
            assert!(file["name"].as_str().unwrap().starts_with(&machine.downloads().url()), "{file}");
            assert!(file["canonical"].as_str().unwrap().starts_with("https://"), "{file}");
        }
    }
    for (image, groups) in [
        ("/kube-apiserver:", json!([CONTROL_PLANE])),
        ("/kube-apiserver-healthcheck:", json!([CONTROL_PLANE])),
        ("/etcd-manager-slim:", json!([CONTROL_PLANE])),
        ("/channels:", json!([CONTROL_PLANE])),
        ("/kube-proxy:", json!([CONTROL_PLANE, NODES])),
        ("registry.k8s.io/pause:3.10.1", json!([CONTROL_PLANE, NODES])),
        ("example.com/kops-controller:1", json!([])),
    ] {
        assert_eq!(find(&list, "image", image)["instanceGroups"], groups, "{image}");
    }
    let distributions = |package: &str| -> BTreeSet<String> {
        let packages = list.iter().filter(|item| item["kind"] == "package" && item["name"] == package);
        packages.map(|item| item["distribution"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(distributions("libseccomp2"), ["debian-12", "ubuntu-24.04"].map(str::to_owned).into());
}

#[test]
fn a_line_has_the_kind_the_hash_and_the_name() {
    let machine = cluster();
    let of_nodes = assets(&machine, &["--instance-group", NODES]);
    of_nodes.with(CONVERGED, &[]);
    assert!(!of_nodes.stdout.contains("/kube-apiserver"), "{of_nodes:#?}");

    // A shell reads the list.
    const READ: &str =
        "while read -r kind of name; do echo \"$kind $(echo -n $of | wc -c) ${name##*/}\"; done";
    let mut list = command(&machine, &["--instance-group", NODES]);
    let mut list = list.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut shell = Command::new("bash");
    let read = Ended::from_command(shell.args(["-c", READ]).stdin(list.stdout.take().unwrap()));
    assert!(list.wait().unwrap().success());
    for line in ["file 64 kubelet", "image 1 pause:3.10.1", "package 12 libseccomp2"] {
        assert!(read.stdout.lines().any(|read| read == line), "{line:?} is not in {read:#?}");
    }
}

/// A list without hashes would let a mirror serve anything.
#[test]
fn an_unknown_hash_is_told() {
    let machine = Machine::new(NODES);
    let ended = assets(&machine, &[]);
    ended.with(CONVERGED, &["the SHA-256 of files with - in the list is unknown", "--asset-hashes FILE"]);
    let kubelet = ended.stdout.lines().find(|line| line.ends_with("/arm64/kubelet")).unwrap();
    let url = kubelet.strip_prefix("file - ").unwrap();

    let (hashes, hash) = (machine.folder().join("hashes"), "ab".repeat(32));
    fs::write(&hashes, format!("{hash}  {url}\n")).unwrap();
    let given = assets(&machine, &["--asset-hashes", hashes.to_str().unwrap()]);
    given.with(CONVERGED, &[]);
    assert!(given.stdout.contains(&format!("file {hash} {url}\n")), "{given:#?}");
}

/// Serves these images, as the mirror of all registries.
fn mirror(machine: &Machine, names: &[&str]) -> LoopbackServer {
    let mut images = Images::default();
    for name in names {
        let (_, path) = name.split_once('/').unwrap();
        let (path, tag) = path.split('@').next().unwrap().rsplit_once(':').unwrap();
        images.add(path, tag, &[("/program", b"program")]).unwrap();
    }
    let server = registry::start(TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(images)).unwrap();
    let containerd = "\n  containerd:\n";
    let mirrored = format!("{containerd}    registryMirrors:\n      '*':\n      - {}\n", server.url());
    machine.cluster.edit("cluster-completed.spec", containerd, &mirrored).unwrap();
    server
}

#[test]
fn a_check_tells_what_no_server_has_and_what_it_does_not_know() {
    let machine = cluster();
    let list = listed(&machine);
    let images: Vec<&str> = list
        .iter()
        .filter(|item| item["kind"] == "image")
        .map(|item| item["name"].as_str().unwrap())
        .collect();
    let _registry = mirror(&machine, &images);
    let whole = assets(&machine, &["--check"]);
    whole.with(CONVERGED, &[]);
    let is_right = |line: &str| {
        let words: Vec<&str> = line.split(' ').take(2).collect();
        matches!(words[..], ["ok", "file" | "image"] | ["-", "package" | "packageSource"])
    };
    assert!(whole.stdout.lines().all(is_right), "{whole:#?}");
    assert_eq!(whole.stdout.lines().count(), list.len());

    let path = |end: &str| machine.downloads().paths().into_iter().find(|path| path.ends_with(end)).unwrap();
    let (missing, busy) = (path("/arm64/kubelet"), path("/amd64/kubelet"));
    machine.downloads().break_path(&missing, Fault::Status(404));
    machine.downloads().break_path(&busy, Fault::Status(503));
    let broken = assets(&machine, &["--check"]);
    broken.with(DIFFERENT, &["that no server has: 1", "that could not be checked: 1"]);
    let of = |status: &str| -> Vec<&str> {
        broken.stdout.lines().filter(|line| line.starts_with(status)).collect()
    };
    let ([lost], [unknown]) = (&of("MISSING ")[..], &of("UNKNOWN ")[..]) else { panic!("{broken:#?}") };
    assert!(lost.contains(&missing) && lost.ends_with("(it answers 404 Not Found)"), "{lost}");
    assert!(unknown.contains(&busy) && unknown.contains("503"), "{unknown}");

    let json = assets(&machine, &["--check", "-o", "json"]);
    json.with(DIFFERENT, &[]);
    let checked: Value = serde_json::from_str(&json.stdout).unwrap();
    let checked = checked["items"].as_array().unwrap();
    let file = find(checked, "file", &missing);
    assert_eq!(
        (&file["status"], &file["problems"]),
        (&json!("missing"), &json!(["it answers 404 Not Found"]))
    );
    assert_eq!(find(checked, "image", "/pause:")["status"], "ok");
}

#[test]
fn an_image_that_neither_a_mirror_nor_its_registry_has_is_missing() {
    let machine = cluster();
    let list = listed(&machine);
    let is_image = |item: &&Value| item["kind"] == "image";
    let images = list.iter().filter(is_image).map(|item| item["name"].as_str().unwrap());
    let images: Vec<&str> = images.filter(|image| !image.contains("/etcd-manager-slim")).collect();
    let registry = mirror(&machine, &images);
    let ended = assets(&machine, &["--check"]);
    ended.with(DIFFERENT, &["that no server has: 1"]);
    let missing: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("MISSING ")).collect();
    let [line] = missing[..] else { panic!("{ended:#?}") };
    let parts = ["image - registry.k8s.io/etcd-manager/etcd-manager-slim:", "https://registry.k8s.io: "];
    for part in parts
        .map(str::to_owned)
        .into_iter()
        .chain([format!("({}: it answers 404 Not Found; ", registry.url())])
    {
        assert!(line.contains(&part), "{part:?} is not in {line:?}");
    }
}

#[test]
fn a_list_that_would_be_incomplete_is_none() {
    let machine = cluster();
    let refused = |flags: &[&str], code: i32, parts: &[&str]| {
        let ended = assets(&machine, flags);
        ended.with(code, parts);
        assert_eq!(ended.stdout, "");
    };
    refused(
        &["--instance-group", "others"],
        CONFIGURATION,
        &["has no instance group others; it has: ", "[KA3010]"],
    );
    refused(&["--no-such"], USAGE, &["--no-such", "[KA1001]"]);
    refused(
        &["--asset-hashes", "/nonexistent"],
        FAILED,
        &["reading --asset-hashes /nonexistent", "[KA1006]"],
    );

    let mut silent = command(&machine, &["--store-timeout", "0"]);
    let silent = Ended::from_command(silent.env("S3_ENDPOINT", "http://127.0.0.1:1"));
    silent.with(FAILED, &["finding the cluster's instance groups", "[KA2005]"]);

    let folder = machine.cluster.store.cluster_folder();
    fs::rename(folder.join("manifests/etcd"), machine.folder().join("etcd")).unwrap();
    let parts = [
        &format!("listing the assets of the instance group {CONTROL_PLANE}"),
        "reading manifest",
        "[KA2001]",
    ];
    refused(&[], CONFIGURATION, &parts);
    fs::rename(machine.folder().join("etcd"), folder.join("manifests/etcd")).unwrap();

    fs::remove_file(folder.join("addons/bootstrap-channel.yaml")).unwrap();
    refused(&[], CONFIGURATION, &["reading the channel", "bootstrap-channel.yaml", "[KA2001]"]);

    for group in [CONTROL_PLANE, NODES] {
        fs::remove_file(folder.join("instancegroup").join(group)).unwrap();
    }
    refused(&[], CONFIGURATION, &["has no instance group whose machines become nodes", "[KA3010]"]);
}
