//! The state that was last applied: what a machine is put right by while its store cannot be read, or has a
//! configuration that is for other machines.
//!
//! It is kept beside the record, for root's eyes only. Private keys and secrets are references in it, as in any desired
//! state; of keysets it has the certificates. It counts only together with a record of the same configuration: whatever
//! interrupts a run between writing the two, a state that was not reached is never taken for the last one.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_plan::resource::{Content, DesiredState, File, Resource, SecretPiece};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::host::Host;
use crate::secrets::Secrets;
use crate::staged::write_file;

/// Where it is, below the root.
const PATH: &str = "/var/lib/kops-agent/applied.json";
/// Of what the file means; another one is not read.
const VERSION: u32 = 1;

/// Where the keys and secrets of a state are read. Empty where this machine reads no store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Sources {
    /// URL of the folder of keysets.
    pub keysets: String,
    /// URL of the folder of secrets.
    pub secrets: String,
}

/// What was last applied, and all that it takes to apply it again, but for keys and secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    version: u32,
    /// The cluster's name.
    pub cluster: String,
    /// The instance group.
    pub instance_group: String,
    /// Which machine it was applied to ([`kops_agent_plan::facts::Facts::machine`]).
    #[serde(default)]
    pub machine: String,
    /// `NodeupConfigHash` of the configuration.
    pub config_hash: String,
    /// Where its keys and secrets are read.
    pub sources: Sources,
    /// The certificates of keysets in PEM, as far as the state needs them.
    keysets: BTreeMap<String, PublicKeyset>,
    resources: Vec<Resource>,
}

/// What is public of a keyset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PublicKeyset {
    trusted: String,
    /// The certificates of items, by id.
    items: BTreeMap<String, String>,
}

impl Applied {
    /// A state that has been applied with these keys and secrets.
    pub fn of(
        cluster: &str,
        instance_group: &str,
        config_hash: &str,
        sources: Sources,
        desired: &DesiredState,
        secrets: &dyn Secrets,
    ) -> Applied {
        let mut keysets: BTreeMap<String, PublicKeyset> = BTreeMap::new();
        for (name, id) in items_of(desired) {
            let keyset = keysets.entry(name.to_owned()).or_default();
            keyset.trusted = secrets.trusted_certificates(name).unwrap_or_default();
            if let Some(certificate) = secrets.item_certificate(name, id) {
                keyset.items.insert(id.to_owned(), certificate);
            }
        }
        Applied {
            version: VERSION,
            cluster: cluster.to_owned(),
            instance_group: instance_group.to_owned(),
            machine: String::new(),
            config_hash: config_hash.to_owned(),
            sources,
            keysets,
            resources: desired.iter().map(|(_, resource)| resource.clone()).collect(),
        }
    }

    /// The same, as it was applied to this machine.
    pub fn to_machine(self, machine: String) -> Applied {
        Applied { machine, ..self }
    }

    /// The state.
    pub fn desired(&self) -> DesiredState {
        let mut desired = DesiredState::default();
        self.resources.iter().for_each(|resource| desired.add(resource.clone()));
        desired
    }

    /// The secrets that are in its files.
    pub fn secrets(&self) -> BTreeSet<&str> {
        self.resources.iter().flat_map(secrets_of).collect()
    }

    /// The items of keysets whose private keys it needs, as keyset and id: those that sign its certificates, and those
    /// that are in its files.
    pub fn items(&self) -> BTreeSet<(&str, &str)> {
        self.resources.iter().flat_map(items).collect()
    }

    /// The file that holds nothing but the private key of an item.
    pub fn file_of_key(&self, keyset: &str, id: &str) -> Option<&str> {
        self.resources.iter().find_map(|resource| match resource {
            Resource::File(File { path, content: Content::SecretText(pieces), .. }) => {
                match pieces.as_slice() {
                    [SecretPiece::KeysetPrivateKey { keyset: of, id: its }] if of == keyset && its == id => {
                        Some(path.as_str())
                    }
                    _ => None,
                }
            }
            _ => None,
        })
    }

    /// The certificates of all trusted items of a keyset in PEM.
    pub fn trusted_certificates(&self, keyset: &str) -> Option<&str> {
        self.keysets.get(keyset).map(|keyset| keyset.trusted.as_str()).filter(|trusted| !trusted.is_empty())
    }

    /// The certificate of an item of a keyset in PEM.
    pub fn item_certificate(&self, keyset: &str, id: &str) -> Option<&str> {
        self.keysets.get(keyset)?.items.get(id).map(String::as_str)
    }
}

fn items_of(desired: &DesiredState) -> BTreeSet<(&str, &str)> {
    desired.iter().flat_map(|(_, resource)| items(resource)).collect()
}

fn items(resource: &Resource) -> Vec<(&str, &str)> {
    match resource {
        Resource::Certificate(certificate) => vec![(&certificate.signer, &certificate.keypair_id)],
        _ => pieces(resource)
            .iter()
            .filter_map(|piece| match piece {
                SecretPiece::KeysetPrivateKey { keyset, id } => Some((keyset.as_str(), id.as_str())),
                _ => None,
            })
            .collect(),
    }
}

/// The secrets that are in a file.
pub(crate) fn secrets_of(resource: &Resource) -> impl Iterator<Item = &str> {
    pieces(resource)
        .iter()
        .filter_map(|piece| if let SecretPiece::Secret(name) = piece { Some(name.as_str()) } else { None })
}

fn pieces(resource: &Resource) -> &[SecretPiece] {
    match resource {
        Resource::File(File { content: Content::SecretText(pieces), .. }) => pieces,
        _ => &[],
    }
}

impl Host {
    /// What was last applied; `None` where nothing was, and where what is kept of it is not of the configuration that
    /// the record names, or cannot be read, as after a newer release of the agent.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn applied(&self) -> Result<Option<Applied>> {
        let Some(bytes) = self.root.read(PATH)? else { return Ok(None) };
        let applied: Option<Applied> = serde_json::from_slice(&bytes).ok();
        let config_hash = self.record()?.config_hash;
        Ok(applied.filter(|applied| {
            applied.version == VERSION && !config_hash.is_empty() && applied.config_hash == config_hash
        }))
    }

    /// Keeps what was applied. To be called under the lock under which it was.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep_applied(&self, applied: &Applied) -> Result<()> {
        let failed = |error: serde_json::Error| Error::path("write", PATH, std::io::Error::from(error));
        let bytes = serde_json::to_vec(applied).map_err(failed)?;
        // A run that has nothing to do writes nothing.
        if self.root.read(PATH)?.as_ref() == Some(&bytes) {
            return Ok(());
        }
        write_file(&self.root, PATH, 0o600, None, &bytes)
    }

    /// The content of a file that is as the agent left it; `None` where it is not, or is none of the agent's.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_unchanged(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let record = self.record()?;
        let Some(left) = record.left_sha256(path) else { return Ok(None) };
        let bytes = self.root.read(path)?;
        Ok(bytes.filter(|bytes| kops_agent_plan::diff::sha256_hex(bytes) == left))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use kops_agent_plan::resource::Mode;

    use super::*;
    use crate::secrets::PemPair;

    struct Store;

    impl Secrets for Store {
        fn keyset_item(&self, keyset: &str, id: &str) -> Option<PemPair> {
            Some(PemPair { certificate: format!("{keyset} {id}"), private_key: "PRIVATE".into() })
        }

        fn trusted_certificates(&self, keyset: &str) -> Option<String> {
            Some(format!("all of {keyset}"))
        }

        fn secret(&self, _: &str) -> Option<Vec<u8>> {
            Some(b"SECRET".to_vec())
        }

        fn bootstrap_certificate(&self, _: &str) -> Option<PemPair> {
            None
        }
    }

    fn applied() -> Applied {
        let mut desired = DesiredState::default();
        let key = SecretPiece::KeysetPrivateKey { keyset: "ca".into(), id: "7".into() };
        desired.add(File::new("/ca.key", Content::SecretText(vec![key])).mode(Mode::PRIVATE));
        desired.add(File::new("/token", Content::SecretText(vec![SecretPiece::Secret("admin".into())])));
        desired.add(File::text("/text", "text"));
        Applied::of("c.example.com", "nodes", "hash", Sources::default(), &desired, &Store)
    }

    fn converged_to(host: &Host, config_hash: &str) {
        let mut record = crate::Record::default();
        record.config_hash = config_hash.into();
        record.write(&host.root).unwrap();
    }

    #[test]
    fn it_is_read_back_with_certificates_and_without_keys_and_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::scratch(folder.path()).unwrap();
        let applied = applied();
        host.keep_applied(&applied).unwrap();
        let file = folder.path().join(PATH.trim_start_matches('/'));
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("PRIVATE") && !text.contains("SECRET"), "{text}");

        assert_eq!(host.applied().unwrap(), None, "nothing was converged to yet");
        converged_to(&host, "hash");
        assert_eq!(host.applied().unwrap().as_ref(), Some(&applied));
        assert_eq!(applied.desired().len(), 3);
        assert_eq!(applied.secrets(), BTreeSet::from(["admin"]));
        assert_eq!(applied.items(), BTreeSet::from([("ca", "7")]));
        assert_eq!(applied.file_of_key("ca", "7"), Some("/ca.key"));
        assert_eq!(applied.item_certificate("ca", "7"), Some("ca 7"));
        assert_eq!(applied.trusted_certificates("ca"), Some("all of ca"));

        converged_to(&host, "other");
        assert_eq!(host.applied().unwrap(), None, "the record is of another configuration");
    }

    #[test]
    fn what_a_newer_release_kept_is_not_guessed_at() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::scratch(folder.path()).unwrap();
        converged_to(&host, "hash");
        for unreadable in [
            serde_json::to_vec(&Applied { version: VERSION + 1, ..applied() }).unwrap(),
            br#"{"version":1,"configHash":"hash","resources":[{"kind":"Unheard"}]}"#.to_vec(),
            b"{".to_vec(),
        ] {
            write_file(&host.root, PATH, 0o600, None, &unreadable).unwrap();
            assert_eq!(host.applied().unwrap(), None);
        }
    }
}
