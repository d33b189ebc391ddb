//! Where a node's downloads come from, and by which way: buckets, proxies, TLS.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;

use crate::example::{Ended, Machine};
use kops_agent_tests::downloads::{Downloads, Fault};
use kops_agent_tests::example_store::{NODES, releases};
use kops_agent_tests::loopback::Identity;
use kops_agent_tests::proxy::Proxy;

const KUBELET: &str = "/release/v1.34.2/bin/linux/arm64/kubelet";
const BUCKET: &str = "s3://assets";

/// What a mirror of this release has, with its checksum files.
pub(crate) fn stand_ins() -> BTreeMap<String, Vec<u8>> {
    let mirror = Downloads::start(&releases()).unwrap();
    assert!(mirror.paths().contains(&KUBELET.to_owned()));
    releases().stand_ins().unwrap()
}

/// A node whose file repository is this one, and not the example's own.
fn node_with_repository(url: &str) -> Machine {
    let node = Machine::of(NODES);
    let mirror = node.downloads().url();
    node.cluster.edit("cluster-completed.spec", &mirror, url).unwrap();
    node
}

fn installed(node: &Machine) -> Vec<u8> {
    fs::read(node.root().join("usr/local/bin/kubelet")).unwrap()
}

/// A node whose file repository is a bucket, filled as `kops get assets --copy` fills it.
fn node_with_bucket() -> Machine {
    let node = node_with_repository(BUCKET);
    let bucket = node.cluster.store.buckets().join("assets");
    for (path, bytes) in stand_ins() {
        let file = bucket.join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let hash = sha256(&bytes);
        fs::write(&file, bytes).unwrap();
        fs::write(format!("{}.sha256", file.display()), hash).unwrap();
    }
    node
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_bucket_is_a_file_repository_with_the_nodes_own_credentials() {
    let node = node_with_bucket();
    let ended = node.run("converge", &["--v=9"]);
    ended.with(0, &[]);
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
fn what_a_bucket_lacks_or_does_not_give_is_said() {
    let hashes = |node: &Machine| {
        let lines =
            stand_ins().into_iter().map(|(path, bytes)| format!("{}  {BUCKET}{path}\n", sha256(&bytes)));
        let file = node.folder().join("hashes");
        fs::write(&file, lines.collect::<String>()).unwrap();
        file.display().to_string()
    };
    let node = node_with_bucket();
    fs::remove_file(node.cluster.store.buckets().join("assets").join(KUBELET.trim_start_matches('/')))
        .unwrap();
    let missing = node.run("converge", &["--asset-hashes", &hashes(&node)]);
    let url =
        format!("cannot download {BUCKET}{KUBELET}: it does not exist; check spec.assets.fileRepository");
    missing.with(1, &[&url, "kops get assets --copy"]);
    assert_eq!(node.files(), [""; 0]);

    let node = node_with_bucket();
    node.cluster.s3.forbid(KUBELET.trim_start_matches('/'));
    let forbidden = node.run("converge", &["--asset-hashes", &hashes(&node)]);
    forbidden.with(1, &[&format!("cannot download {BUCKET}{KUBELET}: access denied (403)")]);
}

#[test]
fn a_proxy_is_used_unless_it_is_not_to_be() {
    let proxy = Proxy::start().unwrap();
    let node = Machine::of(NODES);
    let mut agent = node.agent("converge");
    Ended::of(agent.env("http_proxy", proxy.url())).with(0, &[]);
    let kubelet = format!("GET {}{KUBELET}", node.downloads().url());
    assert!(proxy.asked().contains(&kubelet), "{:?}", proxy.asked());
    assert_eq!(proxy.asked().len(), node.downloads().requests().len(), "some went another way");

    let before = proxy.asked().len();
    for exception in ["127.0.0.1", "example.com,127.0.0.0/8", "*"] {
        let node = Machine::of(NODES);
        let mut agent = node.agent("converge");
        Ended::of(agent.env("http_proxy", proxy.url()).env("no_proxy", exception)).with(0, &[]);
        assert!(node.downloads().requests().contains(&format!("GET {KUBELET}")));
        assert_eq!(proxy.asked().len(), before, "{exception}: {:?}", proxy.asked());
    }
}

#[test]
fn a_proxy_that_is_not_there_is_said_to_be_at_fault() {
    let node = Machine::of(NODES);
    let mut agent = node.agent("converge");
    agent.env("http_proxy", "http://127.0.0.1:1").args(["--download-patience", "1"]);
    Ended::of(&mut agent).with(1, &["refused", &node.downloads().url()]);
    assert_eq!(node.files(), [""; 0]);
}

#[test]
fn by_tls_it_is_http_2_through_a_proxy_too_and_nobody_is_led_away_from_it() {
    let (identity, proxy) = (Identity::new().unwrap(), Proxy::start().unwrap());
    let mirror = Downloads::start_tls(stand_ins(), &identity).unwrap();
    let node = node_with_repository(&mirror.url());
    let bundle = node.folder().join("bundle.pem");
    fs::write(&bundle, &identity.certificate_pem).unwrap();

    let agent = || {
        let mut agent = node.agent("converge");
        agent.env("SSL_CERT_FILE", &bundle).env("HTTPS_PROXY", proxy.url());
        agent
    };
    let plain = node.downloads().url();
    mirror.break_path(KUBELET, Fault::RedirectsTo(format!("{plain}{KUBELET}")));
    let led_away = format!("it redirects from https to {plain}{KUBELET}");
    Ended::of(&mut agent()).with(1, &[&led_away]);
    assert_eq!(node.downloads().requests(), [""; 0]);

    mirror.mend_path(KUBELET);
    Ended::of(&mut agent()).with(0, &[]);
    assert_eq!(installed(&node), stand_ins()[KUBELET]);
    assert_eq!(mirror.http_2_requests(), mirror.requests().len());
    let tunnel = format!("CONNECT {}", mirror.url().trim_start_matches("https://"));
    assert!(
        !proxy.asked().is_empty() && proxy.asked().iter().all(|asked| *asked == tunnel),
        "{:?}",
        proxy.asked()
    );
}
