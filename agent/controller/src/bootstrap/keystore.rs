//! The keys on this machine: of the signing authorities, and of the server itself. Changed files are read again, so a new
//! certificate needs no restart.
//!
//! Source: upstream's `cmd/kops-controller/pkg/server/keystore.go`, and `nodeup/pkg/model/kops_controller.go`, which writes the
//! files.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use kops_agent_pki::{Authority, PemPair};
use kops_agent_plan::desired::NODE_AUTHORITIES;
use kops_agent_spec::{KopsControllerServerOptions, yaml};
use parking_lot::RwLock;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;

use super::super::changed_files::{LOOKED_AT_EVERY, Stamps};
use kops_agent_process::output::error_text;
use kops_agent_spec::failure::{Failure, Kind};

const KEYPAIR_IDS: &str = "keypair-ids.yaml";

/// The authority that signs the certificates of kubelets.
pub const CLIENT_AUTHORITY: &str = "kubernetes-ca";

pub struct Keys {
    /// The authorities, by the names of their keysets.
    pub authorities: BTreeMap<String, Authority>,
    /// The id of each authority's key pair.
    pub keypair_ids: BTreeMap<String, String>,
    /// The authorities that verify client certificates: `kubernetes-ca`, and the other trusted authorities of its keyset. `None` if
    /// `server.signingCAs` does not name `kubernetes-ca`, or if this authority cannot be used.
    pub clients: Option<Arc<RootCertStore>>,
    server: Arc<CertifiedKey>,
}

/// The key files, and the keys that were last read from the files.
pub struct Keystore {
    files: Files,
    now: RwLock<(Stamps, Arc<Keys>)>,
}

struct Files {
    folder: PathBuf,
    signing_cas: Vec<String>,
    server_certificate: PathBuf,
    server_key: PathBuf,
}

impl Keystore {
    /// Reads the files that the configuration names.
    pub fn load(options: &KopsControllerServerOptions) -> Result<Keystore> {
        let files = Files {
            folder: here(&options.ca_base_path),
            signing_cas: options.signing_cas.clone(),
            server_certificate: here(&options.server_certificate_path),
            server_key: here(&options.server_key_path),
        };
        let stamps = Stamps::new(&files.all());
        let keys = Arc::new(files.read()?);
        Ok(Keystore { files, now: RwLock::new((stamps, keys)) })
    }

    pub fn keys(&self) -> Arc<Keys> {
        self.now.read().1.clone()
    }

    /// Checks the files every 10 seconds, forever. If a changed file is invalid, the previous keys stay in use.
    pub async fn watch(&self) {
        loop {
            tokio::time::sleep(LOOKED_AT_EVERY).await;
            self.refresh();
        }
    }

    /// Reads the files again if they have changed.
    pub fn refresh(&self) {
        let stamps = Stamps::new(&self.files.all());
        if self.now.read().0 == stamps {
            return;
        }
        let read = self.files.read();
        let mut now = self.now.write();
        // After a failure, the files are only read again if they change.
        now.0 = stamps;
        match read {
            Ok(keys) => {
                log::info!("the bootstrap server's keys and certificates have changed, and were read again");
                now.1 = Arc::new(keys);
            }
            Err(error) => log::error!(
                "the bootstrap server's keys and certificates have changed, but cannot be used; the earlier keys \
                 and certificates stay in use: {}",
                error_text(&error)
            ),
        }
    }
}

impl fmt::Debug for Keystore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Keystore({})", self.files.folder.display())
    }
}

impl ResolvesServerCert for Keystore {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.keys().server.clone())
    }
}

impl Files {
    fn all(&self) -> Vec<PathBuf> {
        let of_authority = |name: &String| [self.certificate(name), self.key(name)];
        let mut all: Vec<PathBuf> = self.signing_cas.iter().flat_map(of_authority).collect();
        all.extend([self.folder.join(KEYPAIR_IDS), self.server_certificate.clone(), self.server_key.clone()]);
        all.push(self.trusted());
        all
    }

    /// The file with the authorities that are trusted in addition to the signing authority. A pod of kOps has no such file. The pod has the
    /// authorities that verify the API server, but these may differ from the authorities of nodes.
    fn trusted(&self) -> PathBuf {
        self.folder.join(NODE_AUTHORITIES)
    }

    /// Reads the authorities in the file [`Files::trusted`]. If the file cannot be read, returns an empty text, so nodes can only renew
    /// certificates of the signing authority.
    fn others_trusted(&self) -> String {
        let file = self.trusted();
        match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => {
                log::warn!(
                    "{} cannot be read, so nodes can only renew certificates of the current {CLIENT_AUTHORITY}: {error}",
                    file.display()
                );
                String::new()
            }
        }
    }

    fn certificate(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.crt"))
    }

    fn key(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.key"))
    }

    fn read(&self) -> Result<Keys> {
        let ids = self.folder.join(KEYPAIR_IDS);
        let keypair_ids: BTreeMap<String, String> = yaml::from_str(&text(&ids)?)
            .map_err(|_| unusable(format!("{} does not map authorities to keypair ids", ids.display())))?;
        let mut authorities = BTreeMap::new();
        for name in &self.signing_cas {
            let pair =
                PemPair { certificate: text(&self.certificate(name))?, private_key: text(&self.key(name))? };
            let id = keypair_ids.get(name).map_or("", String::as_str);
            let authority = Authority::load(name, id, pair, OffsetDateTime::now_utc())
                .with_context(|| format!("reading {}", self.certificate(name).display()))?;
            authorities.insert(name.clone(), authority);
        }
        let vouching = self.signing_cas.iter().find(|name| *name == CLIENT_AUTHORITY);
        let vouching = vouching
            .map(|name| vouching_for_clients(&text(&self.certificate(name))?, &self.others_trusted()));
        // Without client authorities, nodes cannot renew certificates, but machines can bootstrap.
        let clients = vouching.and_then(|clients| {
            let warned = |error: &_| {
                log::warn!("nodes cannot renew their certificates at this server: {}", error_text(error))
            };
            clients.inspect_err(warned).ok()
        });
        Ok(Keys { authorities, keypair_ids, clients, server: Arc::new(self.server()?) })
    }

    fn server(&self) -> Result<CertifiedKey> {
        let no_certificate = || format!("{} holds no PEM certificate", self.server_certificate.display());
        let chain = CertificateDer::pem_slice_iter(text(&self.server_certificate)?.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .with_context(no_certificate)?;
        if chain.is_empty() {
            return Err(unusable(no_certificate()).into());
        }
        let of_key = || format!("the private key {}", self.server_key.display());
        let key = PrivateKeyDer::from_pem_slice(text(&self.server_key)?.as_bytes())
            .map_err(|_| unusable(format!("{} is not a PEM key", of_key())))?;
        let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
            .with_context(|| format!("{} with {}", of_key(), self.server_certificate.display()))?;
        key.keys_match().with_context(of_key)?;
        Ok(key)
    }
}

/// Translates a path in the configuration to a path on this machine. The configuration has the paths in kops-controller's pod, below
/// `/etc/kubernetes/kops-controller/pki`. On a machine, the files are in `/etc/kubernetes/kops-controller`.
fn here(path: &str) -> PathBuf {
    let path = PathBuf::from(path);
    let on_the_machine: PathBuf = path.components().filter(|part| part.as_os_str() != "pki").collect();
    match !path.exists() && on_the_machine.exists() {
        true => on_the_machine,
        false => path,
    }
}

fn unusable(problem: String) -> Failure {
    Failure::new(Kind::ServerKeys, problem)
}

fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// Collects the authorities (PEM) that may sign client certificates. If one of `others` is invalid, skips it with a warning.
fn vouching_for_clients(authority: &str, others: &str) -> Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(authority.as_bytes());
    let authority = authority.with_context(|| format!("{CLIENT_AUTHORITY} holds no PEM certificate"))?;
    roots.add(authority).with_context(|| format!("{CLIENT_AUTHORITY} cannot verify client certificates"))?;
    for other in CertificateDer::pem_slice_iter(others.as_bytes()) {
        let added = other.map_err(|error| error.to_string());
        let added = added.and_then(|other| roots.add(other).map_err(|error| error.to_string()));
        added.unwrap_or_else(|error| {
            log::warn!(
                "a certificate of {CLIENT_AUTHORITY} in {NODE_AUTHORITIES} cannot verify client \
                 certificates: {error}"
            );
        });
    }
    Ok(Arc::new(roots))
}
