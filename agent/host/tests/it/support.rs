//! A store, a mirror and a machine to test against.
#![allow(dead_code, unused_imports, clippy::unwrap_used)] // Every test binary uses a part of it.

pub(crate) mod images;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use kops_agent_host::{DownloadTimeouts, Downloads, Error, Host, Report, Scope, Secrets, Silent};
use kops_agent_net::LocationClient;
use kops_agent_pki::PemPair;
use kops_agent_plan::diff::{Plan, diff_with_owned};
use kops_agent_plan::resource::{AssetContent, Content, DesiredState, File, Mode};
use kops_agent_tests::authority::{Authority, Pair};
pub(crate) use kops_agent_tests::downloads::{Downloads as Mirror, Fault};

/// A store with one certificate authority and one secret.
pub(crate) struct Store {
    ca: PemPair,
}

impl Store {
    pub(crate) fn new() -> Store {
        let Pair { certificate, private_key } = Authority::new("kubernetes-ca").unwrap().pair();
        Store { ca: PemPair { certificate, private_key } }
    }
}

impl Secrets for Store {
    fn keyset_item(&self, keyset: &str, _id: &str) -> Option<PemPair> {
        (keyset == "kubernetes-ca").then(|| self.ca.clone())
    }

    fn trusted_certificates(&self, _keyset: &str) -> Option<String> {
        Some(self.ca.certificate.clone())
    }

    fn secret(&self, name: &str) -> Option<Vec<u8>> {
        (name == "token").then(|| b"hunter2".to_vec())
    }

    fn bootstrap_certificate(&self, _name: &str) -> Option<PemPair> {
        None
    }
}

/// The scope of every desired state in these tests.
pub(crate) const SCOPE: Scope<'static> =
    Scope::Node { config_hash: "hash", known_hashes: &BTreeMap::new(), without: &BTreeSet::new() };

/// A scratch root, with the store and the downloads of its runs.
pub(crate) struct Machine {
    pub(crate) root: tempfile::TempDir,
    pub(crate) store: Store,
    pub(crate) downloads: Downloads,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        Machine { root: tempfile::tempdir().unwrap(), store: Store::new(), downloads: downloads(CALM) }
    }

    pub(crate) fn downloading(self, downloads: Downloads) -> Machine {
        Machine { downloads, ..self }
    }

    pub(crate) fn host(&self) -> Host {
        Host::scratch(self.root.path()).unwrap().with_clock(noon)
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.read("/var/lib/kops-agent/recorded/requests.txt").lines().map(str::to_owned).collect()
    }

    pub(crate) fn plan(&self, host: &Host, desired: &DesiredState) -> Plan {
        let observed = host.observe(desired, &self.store).unwrap();
        diff_with_owned(desired, &observed, &host.owned_beside(desired).unwrap())
    }

    pub(crate) async fn converge_with(&self, host: &Host, desired: &DesiredState) -> Result<Report, Error> {
        let observed = host.observe(desired, &self.store)?;
        let plan = diff_with_owned(desired, &observed, &host.owned_beside(desired)?);
        host.apply(&plan, desired, &self.store, &self.downloads, &Silent, SCOPE).await
    }

    pub(crate) async fn converge(&self, desired: &DesiredState) -> Result<Report, Error> {
        self.converge_with(&self.host(), desired).await
    }

    pub(crate) async fn error(&self, desired: &DesiredState) -> String {
        self.converge(desired).await.unwrap_err().to_string()
    }

    /// Every path below the root, except the agent's own files.
    pub(crate) fn tree(&self) -> Vec<String> {
        let mut paths = Vec::new();
        walk(self.root.path(), self.root.path(), &mut paths);
        paths.retain(|path| !path.starts_with("/var/lib/kops-agent") && !path.starts_with("/var/cache"));
        paths.sort();
        paths
    }

    /// The names of cached files, without the files in which the cache keeps its own state.
    pub(crate) fn cached(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("/var/cache/nodeup")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !["staging", "generations.json", ".kops-agent.lock"].contains(&name.as_str()));
        names.sort();
        assert_eq!(std::fs::read_dir(self.path("/var/cache/nodeup/staging")).unwrap().count(), 0);
        names
    }

    /// The temporary files that a run has not removed.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut paths = Vec::new();
        walk(self.root.path(), self.root.path(), &mut paths);
        paths.retain(|path| path.ends_with(".kops-agent"));
        paths
    }
}

fn walk(root: &Path, dir: &Path, paths: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            walk(root, &path, paths);
        } else {
            paths.push(format!("/{}", path.strip_prefix(root).unwrap().display()));
        }
    }
}

/// The fixed time of these tests: 2026-11-21 12:00 UTC.
pub(crate) fn noon() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_262_400)
}

/// Polls `run` until `is_so` returns true, and then drops `run`. There is no timeout.
pub(crate) async fn ended_once<T>(run: impl Future<Output = T>, is_so: impl Fn() -> bool) {
    let so = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = run => panic!("it has ended by itself"),
        () = so => {}
    }
}

/// Downloads over plain HTTP with `timeouts`.
pub(crate) fn downloads(timeouts: DownloadTimeouts) -> Downloads {
    Downloads::new(client(&[])).timeouts(timeouts)
}

/// Long timeouts for downloads that must succeed, because a busy machine may delay any step of a download.
pub(crate) const CALM: DownloadTimeouts = DownloadTimeouts {
    give_up_after: Duration::from_secs(120),
    pause: Duration::from_millis(5),
    stalled_after: Duration::from_secs(60),
    least: 16 * 1024,
    slow_after: Duration::from_secs(60),
    least_unless_slow: 16 * 1024,
};

/// Timeouts for downloads that succeed although a server is silent.
pub(crate) const STEADY: DownloadTimeouts =
    DownloadTimeouts { stalled_after: Duration::from_secs(3), ..CALM };

/// Timeouts for downloads that fail.
pub(crate) const SHORT: DownloadTimeouts =
    DownloadTimeouts { give_up_after: Duration::from_secs(2), ..STEADY };

/// A client like the agent's. It trusts only the certificates `trusted`.
pub(crate) fn client(trusted: &[&str]) -> LocationClient {
    // The provider may already be installed. Then the second installation fails, which does no harm.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let build = |redirects| {
        let trusted = trusted.iter().map(|pem| reqwest::Certificate::from_pem(pem.as_bytes()).unwrap());
        reqwest::Client::builder().no_proxy().redirect(redirects).tls_certs_only(trusted).build()
    };
    LocationClient::built_by(build).unwrap()
}

/// A mirror that serves nothing yet.
pub(crate) fn mirror() -> Mirror {
    Mirror::start_with(BTreeMap::new()).unwrap()
}

/// A body whose neighbouring bytes differ.
pub(crate) fn body(size: usize) -> Vec<u8> {
    (0..size).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
}

pub(crate) fn tar_gz(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        tar.append_data(&mut header, name, *bytes).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// A program that is downloaded from `url`. `member` is the program's path in an archive.
pub(crate) fn asset(path: &str, url: &str, sha256: &str, member: Option<&str>) -> File {
    File::new(
        path,
        Content::Asset(AssetContent {
            url: url.into(),
            mirrors: vec![],
            sha256: Some(sha256.into()),
            member: member.map(Into::into),
        }),
    )
    .mode(Mode::EXECUTABLE)
}

pub(crate) fn mirrored(path: &str, urls: &[&str], sha256: &str) -> File {
    let mut file = asset(path, urls[0], sha256, None);
    if let Content::Asset(asset) = &mut file.content {
        asset.mirrors = urls[1..].iter().map(|url| (*url).to_owned()).collect();
    }
    file
}

pub(crate) fn state<R: Into<kops_agent_plan::resource::Resource>>(
    resources: impl IntoIterator<Item = R>,
) -> DesiredState {
    let mut state = DesiredState::default();
    resources.into_iter().for_each(|resource| state.add(resource));
    state
}
