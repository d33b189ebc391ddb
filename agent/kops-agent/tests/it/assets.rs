//! `config assets` lists everything that the nodes of the example cluster need, and asks the servers for files and images.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_tests::downloads::Fault;
use kops_agent_tests::example_store::{BUCKET, CONFIG_BASE, CONTROL_PLANE, NODES};
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
const SIGNING_KEY: &str = "https://gvisor.dev/archive.key";
const ADDON: &str = "addons/kops-controller.addons.k8s.io/k8s-1.16.yaml";
/// A manifest of an add-on with an image.
const DAEMON_SET: &str = "---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a, namespace: kube-system}\n\
                          spec: {template: {spec: {containers: [{name: a, image: 'example.com/kops-controller:1'}]}}}\n";

/// The example cluster. Its store has the hashes of downloads, as `kops update cluster --yes` writes them, and an
/// add-on with an image.
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

/// The only item of `kind` whose name contains `name`.
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

    // Shell scripts can read the list with a `while read` loop.
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

/// Without a known hash, a mirror could serve any file. So the missing hash is reported.
#[test]
fn an_unknown_hash_is_reported() {
    let machine = Machine::new(NODES);
    let ended = assets(&machine, &[]);
    ended.with(CONVERGED, &["files is unknown (shown as - in the list)", "--asset-hashes FILE"]);
    let kubelet = ended.stdout.lines().find(|line| line.ends_with("/arm64/kubelet")).unwrap();
    let url = kubelet.strip_prefix("file - ").unwrap();

    let (hashes, hash) = (machine.folder().join("hashes"), "ab".repeat(32));
    fs::write(&hashes, format!("{hash}  {url}\n")).unwrap();
    let given = assets(&machine, &["--asset-hashes", hashes.to_str().unwrap()]);
    given.with(CONVERGED, &[]);
    assert!(given.stdout.contains(&format!("file {hash} {url}\n")), "{given:#?}");
}

/// Nodes check no hash of a signing key.
#[test]
fn a_signing_key_needs_no_hash_and_may_have_one() {
    let machine = cluster();
    in_group(&machine, "containerd: {gvisor: {enabled: true}}");
    let without = assets(&machine, &[]);
    without.with(CONVERGED, &[]);
    assert_eq!(without.stderr, "");
    assert!(without.stdout.contains(&format!("file - {SIGNING_KEY}\n")), "{without:#?}");

    let (hashes, hash) = (machine.folder().join("hashes"), "ab".repeat(32));
    fs::write(&hashes, format!("{hash}  {SIGNING_KEY}\n")).unwrap();
    let given = assets(&machine, &["--asset-hashes", hashes.to_str().unwrap()]);
    assert!(given.stdout.contains(&format!("file {hash} {SIGNING_KEY}\n")), "{given:#?}");
}

#[test]
fn the_program_of_an_upgrade_is_listed_for_the_architectures_of_the_groups() {
    let machine = cluster();
    let file = machine.cluster.store.cluster_folder().join("kops-agent/program.yaml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let program = |arch: &str, digit: &str| {
        let url = format!("https://mirror.example.com/kops-agent-{arch}");
        format!("  {arch}: {{url: '{url}', sha256: '{}'}}\n", digit.repeat(64))
    };
    let programs = program("amd64", "a") + &program("arm64", "b");
    fs::write(&file, format!("version: 0.9.0\nprograms:\n{programs}")).unwrap();
    let list = listed(&machine);
    for (group, arch, digit) in [(CONTROL_PLANE, "amd64", "a"), (NODES, "arm64", "b")] {
        let listed = find(&list, "file", &format!("mirror.example.com/kops-agent-{arch}"));
        assert_eq!(listed["instanceGroups"], json!([group]), "{listed}");
        assert_eq!(listed["architectures"], json!([arch]), "{listed}");
        assert_eq!(listed["sha256"], digit.repeat(64), "{listed}");
    }
    fs::write(&file, "version: 0.9.0\n").unwrap();
    let wrong = assets(&machine, &[]);
    wrong.with(CONFIGURATION, &["kops-agent/program.yaml is wrong", "[KA3008]"]);
    assert_eq!(wrong.stdout, "");
}

/// A machine that rejects the configuration may need files that `config assets` does not list. So a warning names this
/// machine.
#[test]
fn machines_that_reject_the_configuration_are_named() {
    let machine = cluster();
    const IMAGE: &str =
        "image: 099720109477/ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-arm64-server-20261014";
    machine.cluster.edit("instancegroup/nodes", IMAGE, "image: ami-0123456789abcdef0").unwrap();
    let ended = assets(&machine, &[]);
    ended.with(CONVERGED, &[&format!("instance group {NODES}: "), "needs glibc 2.34", " (on "]);
}

#[test]
fn skipped_entries_of_a_channel_are_named_and_a_name_is_one_line() {
    let machine = cluster();
    let folder = machine.cluster.store.cluster_folder();
    let channel = folder.join("addons/bootstrap-channel.yaml");
    let text = fs::read_to_string(&channel).unwrap();
    fs::write(&channel, text + "  - {name: broken, manifest: b.yaml, kubernetesVersion: '>=x'}\n").unwrap();
    let addon = folder.join(ADDON);
    let text = fs::read_to_string(&addon).unwrap();
    let forged = "\"example.com/a:1\\nfile - https://forged.example.com\"";
    fs::write(&addon, text.replace("'example.com/kops-controller:1'", forged)).unwrap();
    let ended = assets(&machine, &[]);
    ended.with(CONVERGED, &["the add-on broken is skipped: "]);
    let line = "image - example.com/a:1 file - https://forged.example.com";
    assert!(ended.stdout.lines().any(|listed| listed == line), "{ended:#?}");
}

#[test]
fn a_secret_without_logins_gives_a_warning() {
    let machine = cluster();
    let secret = machine.cluster.store.cluster_folder().join("secrets/dockerconfig");
    for (file, told) in [
        ("no JSON", "the secret dockerconfig is not a configuration file of Docker (line 1, column 2)"),
        (r#"{"auths": {"quay.io": {}}}"#, "kubelet finds no login for quay.io in the secret dockerconfig"),
    ] {
        fs::write(&secret, json!({"Data": STANDARD.encode(file)}).to_string()).unwrap();
        let ended = assets(&machine, &[]);
        ended.with(CONVERGED, &[told]);
        assert_eq!(ended.stderr.matches("the secret dockerconfig").count(), 1, "{ended:#?}");
    }
}

/// Adds a field to the spec of the instance group `nodes`.
fn in_group(machine: &Machine, field: &str) {
    machine
        .cluster
        .edit("instancegroup/nodes", "  role: Node\n", &format!("  {field}\n  role: Node\n"))
        .unwrap();
}

/// Makes a registry with the images `names` the mirror of all registries.
fn mirror(machine: &Machine, names: &[&str]) -> LoopbackServer {
    let server = registry_with(names);
    let containerd = "\n  containerd:\n";
    let mirrored = format!("{containerd}    registryMirrors:\n      '*':\n      - {}\n", server.url());
    machine.cluster.edit("cluster-completed.spec", containerd, &mirrored).unwrap();
    server
}

fn registry_with(names: &[&str]) -> LoopbackServer {
    let mut images = Images::default();
    for name in names {
        let (_, path) = name.split_once('/').unwrap();
        let (path, tag) = path.split('@').next().unwrap().rsplit_once(':').unwrap();
        images.add(path, tag, &[("/program", b"program")]).unwrap();
    }
    registry::start(TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(images)).unwrap()
}

fn images(list: &[Value]) -> Vec<&str> {
    let images = list.iter().filter(|item| item["kind"] == "image");
    images.map(|item| item["name"].as_str().unwrap()).collect()
}

#[test]
fn a_check_lists_missing_and_unknown_files_and_images() {
    let machine = cluster();
    let list = listed(&machine);
    let _registry = mirror(&machine, &images(&list));
    let whole = assets(&machine, &["--check"]);
    let asked = list.iter().filter(|item| matches!(item["kind"].as_str(), Some("file" | "image")));
    let told = format!("checking whether the servers have {} files and images", asked.count());
    whole.with(CONVERGED, &[&told]);
    let is_right = |line: &str| {
        let words: Vec<&str> = line.split(' ').take(2).collect();
        matches!(words[..], ["ok", "file" | "image"] | ["-", "package" | "packageSource"])
    };
    assert!(whole.stdout.lines().all(is_right), "{whole:#?}");
    assert_eq!(whole.stdout.lines().count(), list.len());

    let path = |end: &str| machine.downloads().paths().into_iter().find(|path| path.ends_with(end)).unwrap();
    let (missing, busy) = (path("/arm64/kubelet"), path("/amd64/kubelet"));
    let (forbidden, locked) = (path("/amd64/kubectl"), path("ecr-credential-provider-linux-arm64"));
    for (path, status) in [(&missing, 404), (&busy, 503), (&forbidden, 403), (&locked, 401)] {
        machine.downloads().break_path(path, Fault::Status(status));
    }
    let bucket = format!("s3://{BUCKET}/program");
    let programs = format!("{{amd64: {{url: '{bucket}', sha256: '{}'}}}}", "a".repeat(64));
    fs::create_dir(machine.cluster.store.cluster_folder().join("kops-agent")).unwrap();
    let file = machine.cluster.store.cluster_folder().join("kops-agent/program.yaml");
    fs::write(file, format!("version: 0.9.0\nprograms: {programs}\n")).unwrap();
    fs::write(machine.cluster.store.buckets().join(BUCKET).join("program"), "").unwrap();
    machine.cluster.s3.forbid("program");
    let broken = assets(&machine, &["--check"]);
    broken.with(DIFFERENT, &["that no server has: 1", "that could not be checked: 4"]);
    let of = |status: &str| -> Vec<&str> {
        broken.stdout.lines().filter(|line| line.starts_with(status)).collect()
    };
    let [lost] = of("MISSING ")[..] else { panic!("{broken:#?}") };
    assert!(lost.contains(&missing) && lost.ends_with("(it answers 404 Not Found)"), "{lost}");
    for (path, told) in [
        (&busy, "it answers 503"),
        (&forbidden, "it answers 403"),
        (&locked, "it answers 401"),
        (&bucket, "access denied (403)"),
    ] {
        let is_told = |line: &&str| line.contains(path) && line.contains(told);
        assert!(of("UNKNOWN ").iter().any(is_told), "{path}: {broken:#?}");
    }

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
    let mut images = images(&list);
    images.retain(|image| !image.contains("/etcd-manager-slim"));
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

/// An image counts as missing if a group needs the image and none of the group's servers has it.
#[test]
fn an_image_is_checked_at_the_mirrors_of_each_group_that_needs_it() {
    let machine = cluster();
    let list = listed(&machine);
    let all = images(&list);
    let _of_cluster = mirror(&machine, &all);
    let nodes = machine.cluster.store.cluster_folder().join("instancegroup/nodes");
    let before = fs::read_to_string(&nodes).unwrap();
    let missing = || -> Vec<String> {
        let ended = assets(&machine, &["--check"]);
        ended.with(DIFFERENT, &[]);
        let lines = ended.stdout.lines().filter_map(|line| line.strip_prefix("MISSING image - "));
        lines.map(str::to_owned).collect()
    };
    let few: Vec<&str> = all.iter().copied().filter(|image| !image.contains("/kube-proxy:")).collect();
    let of_nodes = registry_with(&few);
    in_group(&machine, &format!("containerd: {{registryMirrors: {{'*': ['{}']}}}}", of_nodes.url()));
    let lost = missing();
    let [kube_proxy] = &lost[..] else { panic!("{lost:#?}") };
    assert!(kube_proxy.contains("/kube-proxy:") && kube_proxy.contains(&of_nodes.url()), "{kube_proxy}");

    // kOps writes no mirrors into a containerd configuration that the user replaces. So only the registry in the
    // image's name is asked.
    fs::write(&nodes, before).unwrap();
    in_group(&machine, "containerd: {configOverride: 'version = 3'}");
    let lost = missing();
    assert!(lost.iter().any(|line| line.contains("/kube-proxy:")), "{lost:#?}");
    assert!(lost.iter().all(|line| !line.contains("/kube-apiserver:")), "{lost:#?}");
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
    silent.with(FAILED, &["listing the cluster's instance groups", "[KA2005]"]);

    for file in ["config", "kops-version.txt"] {
        machine.cluster.s3.forbid(&format!("demo.example.com/{file}"));
        let url = format!("{CONFIG_BASE}/{file}: access denied (403)");
        refused(&[], FAILED, &[&url, "[KA2002]"]);
        machine.cluster.s3.permit_all();
    }

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
