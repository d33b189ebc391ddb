//! A store, a mirror and a machine to test against.
#![allow(dead_code, unused_imports, clippy::unwrap_used)] // Every test binary uses a part of it.

mod mirror;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use kops_agent_host::{Downloads, Error, Host, PemPair, Report, Secrets, Silent};
use kops_agent_plan::diff::{Plan, diff};
use kops_agent_plan::resource::{AssetContent, Content, DesiredState, File, Mode};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose};

pub(crate) use mirror::{Answer, Mirror};

/// A store with one certificate authority and one secret.
pub(crate) struct Store {
    ca: PemPair,
}

impl Store {
    pub(crate) fn new() -> Store {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "kubernetes-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).unwrap().pem();
        Store { ca: PemPair { certificate, private_key: key.serialize_pem() } }
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

/// A scratch root, and everything to converge it with.
pub(crate) struct Machine {
    pub(crate) root: tempfile::TempDir,
    pub(crate) store: Store,
    pub(crate) downloads: Downloads,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        Machine { root: tempfile::tempdir().unwrap(), store: Store::new(), downloads: impatient() }
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
        diff(desired, &host.observe(desired, &self.store).unwrap())
    }

    /// Observes, plans and applies.
    pub(crate) async fn converge_with(&self, host: &Host, desired: &DesiredState) -> Result<Report, Error> {
        let observed = host.observe(desired, &self.store)?;
        let plan = diff(desired, &observed);
        host.apply(&plan, desired, &self.store, &self.downloads, &Silent).await
    }

    pub(crate) async fn converge(&self, desired: &DesiredState) -> Result<Report, Error> {
        self.converge_with(&self.host(), desired).await
    }

    pub(crate) async fn error(&self, desired: &DesiredState) -> String {
        self.converge(desired).await.unwrap_err().to_string()
    }

    /// Every path below the root but what the agent keeps for itself.
    pub(crate) fn tree(&self) -> Vec<String> {
        let mut paths = Vec::new();
        walk(self.root.path(), self.root.path(), &mut paths);
        paths.retain(|path| !path.starts_with("/var/lib/kops-agent") && !path.starts_with("/var/cache"));
        paths.sort();
        paths
    }

    /// Files that are not where they should be in the end.
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

/// The same moment in every run.
pub(crate) fn noon() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_262_400)
}

/// Downloads that do not wait long.
pub(crate) fn impatient() -> Downloads {
    // The second installation is refused, and as good as the first.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    Downloads::new(client).attempts(3).patience(Duration::from_millis(500), Duration::from_millis(5))
}

/// A program that is downloaded.
pub(crate) fn asset(path: &str, url: &str, sha256: &str, member: Option<&str>) -> File {
    File::new(
        path,
        Content::Asset(AssetContent {
            url: url.into(),
            sha256: Some(sha256.into()),
            member: member.map(Into::into),
        }),
    )
    .mode(Mode::EXECUTABLE)
}

/// A desired state of these resources.
pub(crate) fn state<R: Into<kops_agent_plan::resource::Resource>>(
    resources: impl IntoIterator<Item = R>,
) -> DesiredState {
    let mut state = DesiredState::default();
    resources.into_iter().for_each(|resource| state.add(resource));
    state
}
