//! The sources of a node's downloads, and the ways to them: buckets, proxies, TLS.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};

use crate::example::{Ended, Machine};
use kops_agent_tests::digest::sha256_hex;
use kops_agent_tests::downloads::{Downloads, Fault};
use kops_agent_tests::example_store::{NODES, releases};
use kops_agent_tests::openstack::TOKEN;
use kops_agent_tests::openstack::swift::Swift;
use kops_agent_tests::proxy::Proxy;
use kops_agent_tests::stand_ins::archive_of;

pub(crate) const KUBELET: &str = "/release/v1.34.2/bin/linux/arm64/kubelet";
const BUCKET: &str = "s3://assets";
const CONTAINER: &str = "swift://assets";

/// The files that a mirror of [`releases`] has, without checksum files.
pub(crate) fn stand_ins() -> BTreeMap<String, Vec<u8>> {
    let mirror = Downloads::start(&releases()).unwrap();
    assert!(mirror.paths().contains(&KUBELET.to_owned()));
    releases().stand_ins().unwrap()
}

/// A node whose file repository is at `url`, instead of the example's own.
pub(crate) fn node_with_repository(url: &str) -> Machine {
    let node = Machine::new(NODES);
    let mirror = node.downloads().url();
    node.cluster.edit("cluster-completed.spec", &mirror, url).unwrap();
    node
}

pub(crate) fn installed(node: &Machine) -> Vec<u8> {
    fs::read(node.root().join("usr/local/bin/kubelet")).unwrap()
}

/// A node whose file repository is a bucket. The bucket has the files that `kops get assets --copy` copies.
fn node_with_bucket() -> Machine {
    let node = node_with_repository(BUCKET);
    let bucket = node.cluster.store.buckets().join("assets");
    for (path, bytes) in stand_ins() {
        let file = bucket.join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let hash = sha256_hex(&bytes);
        fs::write(&file, bytes).unwrap();
        fs::write(format!("{}.sha256", file.display()), hash).unwrap();
    }
    node
}

#[test]
fn a_bucket_is_a_file_repository_with_the_nodes_own_credentials() {
    let node = node_with_bucket();
    let ended = node.run("converge", &["--v=10"]);
    ended.with(0, &[]);
    assert!(
        ended.stderr.contains("aws_smithy") || ended.stderr.contains("SdkBody"),
        "libraries say nothing: {ended:#?}"
    );
    assert_eq!(installed(&node), stand_ins()[KUBELET]);
    assert_eq!(node.downloads().requests(), [""; 0], "no other server was asked");
    for secret in [node.cluster.s3.secret_access_key(), "X-Amz-Signature"] {
        assert!(!ended.stderr.contains(secret), "{ended:#?}");
    }
}

#[test]
fn a_folder_takes_the_place_of_a_bucket_of_downloads_too() {
    let node = node_with_bucket();
    let folder = node.folder().join("folder");
    fs::rename(node.cluster.store.buckets().join("assets"), &folder).unwrap();
    node.run("converge", &["--store-mirror", &format!("{BUCKET}={}", folder.display())]).with(0, &[]);
    assert_eq!(installed(&node), stand_ins()[KUBELET]);
}

#[test]
fn a_missing_or_denied_object_of_a_bucket_is_named() {
    let node = node_with_bucket();
    fs::remove_file(node.cluster.store.buckets().join("assets").join(KUBELET.trim_start_matches('/')))
        .unwrap();
    let missing = node.run("converge", &["--asset-hashes", &hashes_below(&node, BUCKET)]);
    let url =
        format!("cannot download {BUCKET}{KUBELET}: it does not exist; check spec.assets.fileRepository");
    missing.with(1, &[&url, "kops get assets --copy"]);
    assert_eq!(node.files(), [""; 0]);

    let node = node_with_bucket();
    node.cluster.s3.forbid(KUBELET.trim_start_matches('/'));
    let forbidden = node.run("converge", &["--asset-hashes", &hashes_below(&node, BUCKET)]);
    forbidden.with(1, &[&format!("cannot download {BUCKET}{KUBELET}: access denied (403)")]);
}

/// Writes a file with the hashes of all downloads below `url`.
fn hashes_below(node: &Machine, url: &str) -> String {
    let lines = stand_ins().into_iter().map(|(path, bytes)| format!("{}  {url}{path}\n", sha256_hex(&bytes)));
    let file = node.folder().join("hashes");
    fs::write(&file, lines.collect::<String>()).unwrap();
    file.display().to_string()
}

/// A node whose file repository is a container of Swift. The container has all downloads and their hashes.
fn node_with_container() -> (Machine, Swift) {
    let node = node_with_bucket();
    node.cluster.edit("cluster-completed.spec", BUCKET, CONTAINER).unwrap();
    let swift = Swift::start(&node.cluster.store.buckets()).unwrap();
    (node, swift)
}

#[test]
fn the_token_of_a_store_goes_to_no_place_that_it_leads_to() {
    let (node, swift) = node_with_container();
    let elsewhere = Downloads::start_with(stand_ins()).unwrap();
    swift.lead_to(&format!("{}{KUBELET}.sha256", elsewhere.url()));
    let run = |verb: &str, flags: &[&str]| {
        let ended =
            Ended::from_command(node.agent(verb).envs(swift.environment()).args(["-v", "8"]).args(flags));
        assert_eq!(elsewhere.requests(), [""; 0], "{ended:#?}");
        assert!(!ended.stderr.contains(TOKEN) && !ended.stdout.contains(TOKEN), "{ended:#?}");
        ended
    };
    let refused = "307 Temporary Redirect, and a request with this machine's credentials follows no redirect";
    run("plan", &[]).with(1, &["asking for the SHA-256 of swift://assets/", refused]);
    let hashes = hashes_below(&node, CONTAINER);
    run("converge", &["--asset-hashes", &hashes]).with(1, &["cannot download swift://assets/", refused]);
    let diagnosis = run("doctor", &[]);
    assert!(diagnosis.stdout.contains(refused), "{diagnosis:#?}");
}

#[test]
fn hashes_over_plain_http_give_a_warning_whatever_the_urls_of_the_downloads() {
    const UNPROVEN: &str = "came over plain http";
    let by_proxy = |node: &Machine, target: String| {
        let target = target.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::start_on(listener, |_| (), move |_| TcpStream::connect(&target)).unwrap();
        let mut agent = node.agent("plan");
        agent.env("http_proxy", proxy.url()).env("no_proxy", "127.0.0.1");
        agent
    };
    // The container has a plain http URL.
    let (node, swift) = node_with_container();
    let plain = Ended::from_command(node.agent("plan").envs(swift.environment()));
    plain.with(0, &[]);
    assert!(!plain.stderr.contains(UNPROVEN), "on this machine nothing is between: {plain:#?}");
    let mut agent = by_proxy(&node, swift.url());
    let named = swift
        .environment()
        .into_iter()
        .map(|(name, value)| (name, value.replace(&swift.url(), "http://swift.internal")));
    let ended = Ended::from_command(agent.envs(named));
    ended.with(0, &[UNPROVEN, &format!("{CONTAINER}{KUBELET}")]);

    // The mirror is on this machine, and redirects to a server on another machine.
    let node = Machine::new(NODES);
    let elsewhere = Downloads::start_with(stand_ins()).unwrap();
    let list = format!("{KUBELET}.sha256");
    node.downloads().break_path(&list, Fault::RedirectsTo(format!("http://mirror.internal{list}")));
    let ended = Ended::from_command(&mut by_proxy(&node, elsewhere.url()));
    ended.with(0, &[UNPROVEN, &format!("{}{KUBELET}", node.downloads().url())]);
    assert!(!ended.stderr.contains("containerd-"), "the others are proven: {ended:#?}");
}

#[test]
fn the_login_of_a_mirror_is_shown_nowhere() {
    const SECRETS: [&str; 2] = ["hunter2", "cm9ib3Q6aHVudGVyMg"];
    let url = |node: &Machine| node.downloads().url().replace("http://", "http://robot:hunter2@");
    let quiet = |ended: Ended| {
        for secret in SECRETS {
            assert!(!ended.stdout.contains(secret) && !ended.stderr.contains(secret), "{ended:#?}");
        }
        ended
    };
    let node = Machine::new(NODES);
    let mirror = node.downloads().url();
    node.cluster.edit("cluster-completed.spec", &mirror, &url(&node)).unwrap();
    for (verb, code) in [("plan", 0), ("converge", 0), ("verify", 0), ("plan", 0)] {
        let ended = quiet(node.run(verb, &["-v", "8"]));
        ended.with(code, &[]);
        if verb == "converge" {
            assert!(
                ended.stderr.contains(&format!("{mirror}{KUBELET}.sha256 has the SHA-256 of kubelet")),
                "{ended:#?}"
            );
        }
    }
    quiet(node.run("doctor", &["-v", "8"]));
    for verb in ["render", "config dump", "config check", "explain --node-ip"] {
        let mut agent = node.agent_without_root(verb.split(" --").next().unwrap());
        agent.args(verb.split_once(" --").map(|(_, flag)| format!("--{flag}")));
        quiet(Ended::from_command(agent.args(["-v", "8", "-o", "json"])));
    }

    // The first mirror has no hashes, and the second mirror does not exist.
    let node = node_with_repository("http://robot:hunter2@127.0.0.1:9");
    let node_without = Machine::new(NODES);
    node_without
        .cluster
        .edit("cluster-completed.spec", &node_without.downloads().url(), &url(&node_without))
        .unwrap();
    for list in [format!("{KUBELET}.sha256"), format!("{KUBELET}.sha256sum")] {
        node_without.downloads().break_path(&list, Fault::Status(404));
    }
    for node in [node, node_without] {
        for verb in ["plan", "converge"] {
            let ended = quiet(node.run(verb, &["-v", "8", "--config-from", "cluster-spec"]));
            assert!(ended.stdout.contains("kubelet") || ended.stderr.contains("kubelet"), "{ended:#?}");
        }
        let diagnosis = quiet(node.run("doctor", &["-v", "8", "--config-from", "cluster-spec"]));
        assert!(diagnosis.stdout.contains(" downloads "), "{diagnosis:#?}");
    }
}

/// In the mirror, replaces the arm64 archive whose path contains `part`. The new archive has `programs`.
fn put_archive(node: &Machine, part: &str, programs: &[&str]) {
    let paths = node.downloads().paths();
    let is_it = |path: &&String| path.contains(part) && path.contains("arm64");
    let (path, bytes) = (paths.iter().find(is_it).unwrap(), archive_of(programs).unwrap());
    node.downloads().put(&format!("{path}.sha256"), sha256_hex(&bytes).as_bytes());
    node.downloads().put(path, &bytes);
}

#[test]
fn a_node_gets_the_programs_in_its_archives_and_needs_no_others() {
    let node = Machine::new(NODES);
    put_archive(&node, "/cni-plugins-", &["./LICENSE", "./README.md", "./loopback", "./ours"]);
    let programs =
        ["bin/containerd", "bin/containerd-shim-runc-v2", "bin/containerd-shim-ours-v1", "bin/ctr"];
    put_archive(&node, "/containerd-", &programs);
    node.run("converge", &[]).with(0, &[]);
    let files = node.files();
    let below =
        |folder: &str| -> Vec<&str> { files.iter().filter_map(|file| file.strip_prefix(folder)).collect() };
    assert_eq!(below("opt/cni/bin/"), ["loopback", "ours"]);
    let of_containerd: Vec<&str> =
        below("usr/bin/").into_iter().filter(|name| name.starts_with('c')).collect();
    assert_eq!(of_containerd, ["containerd", "containerd-shim-ours-v1", "containerd-shim-runc-v2", "ctr"]);

    fs::remove_dir_all(node.root().join("var/cache/nodeup")).unwrap();
    node.run("verify", &[]).with(0, &[]);
}

#[test]
fn an_archive_without_containerd_is_refused_before_anything_is_changed() {
    let node = Machine::new(NODES);
    put_archive(&node, "/containerd-", &["bin/ctr", "bin/docker"]);
    node.run("converge", &[]).with(3, &["has no bin/containerd; set spec.containerd.packages"]);
    assert_eq!(node.files(), [""; 0]);
}
