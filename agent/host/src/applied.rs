//! The last applied state. While the store cannot be read, or while the store's configuration is for other machines,
//! the agent repairs the machine with this state.
//!
//! The state is stored beside the record with mode 0600. It holds the certificates of keysets, but only references to
//! private keys and secrets, as every desired state does. Before the first write, a run stores its target state in a
//! file of its own (`BEGUN_PATH`). Once the machine has converged to the target state, the target state becomes the
//! last applied state. The record names the settled state and the begun state. So an interruption never makes an
//! unreached or outdated state the last one.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_plan::following::Followed;
use kops_agent_plan::resource::{Content, DesiredState, File, Resource, ResourceId, SecretPiece};
use kops_agent_spec::kops_release::WrittenBy;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::attempt::Attempt;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::root::Root;
use crate::secrets::{Secrets, pieces, secrets_of};
use crate::staged::write_file;

const PATH: &str = "/var/lib/kops-agent/applied.json";
/// The file with the state that a run is about to apply.
const BEGUN_PATH: &str = "/var/lib/kops-agent/begun.json";
/// The format version of a stored state. If the version differs, the state is ignored.
const VERSION: u32 = 1;

/// The sources of a state's keys and secrets in the store. Empty if this machine reads no store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Sources {
    /// The URL of the folder of keysets.
    pub keysets: String,
    /// The URL of the folder of secrets.
    pub secrets: String,
}

/// The last applied state. It contains everything that is necessary to apply it again, except keys and secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    version: u32,
    pub cluster: String,
    pub instance_group: String,
    /// The machine to which the state was applied ([`kops_agent_spec::facts::Facts::machine`]).
    #[serde(default)]
    pub machine: String,
    /// The `NodeupConfigHash` of the configuration.
    pub config_hash: String,
    /// Whether the agent derived exactly this configuration from the cluster spec. If so, any other configuration that is later derived
    /// from the spec is newer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_proven: bool,
    /// The kOps release that wrote the configuration; `None` if an old version of the agent wrote the state.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    pub written_by: Option<WrittenBy>,
    /// The boot config that the node follows instead of the boot config in its user-data.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    pub followed: Option<Followed>,
    pub sources: Sources,
    /// The PEM certificates of the keysets that the state needs.
    keysets: BTreeMap<String, PublicKeyset>,
    resources: Vec<Resource>,
    /// The folders in which components keep data, according to the spec ([`DesiredState::data_folders`]).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) data_folders: BTreeSet<String>,
    /// The digest of the state when it was applied. It is stored because another version of the agent may serialize resources differently,
    /// and would compute another digest.
    #[serde(default)]
    digest: String,
}

/// Reads a value. If this version of the agent cannot parse the value, returns `None`, so that the rest of the state
/// is not lost.
pub(crate) fn if_readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(serde_json::Value::deserialize(deserializer)?).ok())
}

/// A change of a node that began but did not finish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The target state. `None` if an old version of the agent began the change and did not store the state.
    pub state: Option<Applied>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PublicKeyset {
    trusted: String,
    /// The certificates of a keyset's items, by item ID.
    items: BTreeMap<String, String>,
}

impl Applied {
    /// The storable form of `desired`. The certificates of the keysets that `desired` uses come from `secrets`.
    pub fn new(
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
            is_proven: false,
            written_by: None,
            followed: None,
            sources,
            keysets,
            resources: desired.iter().map(|(_, resource)| resource.clone()).collect(),
            data_folders: desired.data_folders().clone(),
            digest: Attempt::new(desired, config_hash).digest().to_owned(),
        }
    }

    /// Sets the machine to which the state was applied.
    pub fn to_machine(self, machine: String) -> Applied {
        Applied { machine, ..self }
    }

    /// Sets whether the agent derived exactly this configuration from the cluster spec.
    pub fn proven(self, is_proven: bool) -> Applied {
        Applied { is_proven, ..self }
    }

    /// Sets the kOps release that wrote the configuration.
    pub fn written_by(self, written_by: Option<WrittenBy>) -> Applied {
        Applied { written_by, ..self }
    }

    /// Sets the boot config that the node follows.
    pub fn following(self, followed: Option<Followed>) -> Applied {
        Applied { followed, ..self }
    }

    fn attempt(&self) -> Attempt {
        match self.digest.as_str() {
            "" => Attempt::new(&self.desired(), &self.config_hash),
            digest => Attempt::from_digest(digest, &self.config_hash),
        }
    }

    pub fn desired(&self) -> DesiredState {
        let mut desired = DesiredState::default();
        self.resources.iter().for_each(|resource| desired.add(resource.clone()));
        self.data_folders.iter().for_each(|folder| desired.keeps_data_in(folder));
        desired
    }

    /// The names of the secrets in the state's files.
    pub fn secrets(&self) -> BTreeSet<&str> {
        self.resources.iter().flat_map(secrets_of).collect()
    }

    /// The keyset items (keyset and ID) whose private keys the state needs. It needs them to sign certificates or to write key files.
    pub fn items(&self) -> BTreeSet<(&str, &str)> {
        self.resources.iter().flat_map(items).collect()
    }

    /// The keyset items (keyset and ID) that sign the state's certificates.
    pub fn signers(&self) -> BTreeSet<(&str, &str)> {
        self.resources
            .iter()
            .filter_map(|resource| match resource {
                Resource::Certificate(certificate) => {
                    Some((certificate.signer.as_str(), certificate.keypair_id.as_str()))
                }
                _ => None,
            })
            .collect()
    }

    /// The path of the file that contains only the private key of a keyset item.
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

    /// The PEM certificates of all trusted items in a keyset.
    pub fn trusted_certificates(&self, keyset: &str) -> Option<&str> {
        self.keysets.get(keyset).map(|keyset| keyset.trusted.as_str()).filter(|trusted| !trusted.is_empty())
    }

    /// The PEM certificate of a keyset item.
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

impl Host {
    /// The last applied state; `None` before the first apply. It is also `None` if the stored state does not match the record, or cannot be
    /// parsed, for example because a newer release of the agent wrote it.
    pub fn applied(&self) -> Result<Option<Applied>> {
        let record = self.record()?;
        if record.config_hash.is_empty() {
            return Ok(None);
        }
        // A run may have been killed after it wrote the record, but before it moved the state from `BEGUN_PATH` to `PATH`.
        for path in [PATH, BEGUN_PATH] {
            let kept = kept(&self.root, path)?.filter(|kept| kept.config_hash == record.config_hash);
            if let Some(kept) = kept.filter(|kept| record.is_settled_with(&kept.attempt())) {
                return Ok(Some(kept));
            }
        }
        Ok(None)
    }

    /// All stored states: the last applied state, a begun state, or an outdated state that the record does not name. Callers only use them
    /// to find files that may be secret.
    pub fn kept_states(&self) -> Result<Vec<Applied>> {
        let mut states = Vec::new();
        for path in [PATH, BEGUN_PATH] {
            states.extend(kept(&self.root, path)?);
        }
        Ok(states)
    }

    /// The unfinished change of a node. `None` if there is no such change, if the interrupted run only repaired the last state, or if the
    /// change is being rolled back.
    pub fn unfinished_change(&self) -> Result<Option<Unfinished>> {
        let record = self.record()?;
        if record.config_hash.is_empty() || !record.has_begun_change() || self.is_rolling_back()? {
            return Ok(None);
        }
        let kept = kept(&self.root, BEGUN_PATH)?;
        let kept = kept.filter(|kept| record.begun_state.as_deref() == Some(kept.attempt().digest()));
        Ok(Some(Unfinished { state: kept }))
    }

    /// The given resources that an interrupted run planned to write but did not write.
    pub fn still_to_write<'r>(
        &self,
        ids: impl IntoIterator<Item = &'r ResourceId>,
    ) -> Result<Vec<&'r ResourceId>> {
        let record = self.record()?;
        let mut left = Vec::new();
        for id in ids {
            if record.is_still_to_write(&self.root, id)? {
                left.push(id);
            }
        }
        Ok(left)
    }

    /// Stores the state that is about to be applied, so that a later run can finish it. The caller holds the run lock.
    pub fn keep_begun(&self, begun: &Applied) -> Result<()> {
        // Before the first convergence, no run resumes a begun state.
        if self.record()?.config_hash.is_empty() {
            return Ok(());
        }
        write_kept(&self.root, BEGUN_PATH, begun)
    }

    /// Stores an applied state if the record says that the state has converged. The caller holds the run lock.
    pub fn keep_applied(&self, applied: &Applied) -> Result<()> {
        let record = self.record()?;
        if record.config_hash != applied.config_hash || !record.is_settled_with(&applied.attempt()) {
            return Ok(());
        }
        write_kept(&self.root, PATH, applied)?;
        shred(&self.root, BEGUN_PATH)
    }

    /// The content of a file that the agent wrote, if it is unchanged since. `None` if the file differs, or if the agent did not write it.
    pub fn read_unchanged(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let record = self.record()?;
        let Some(left) = record.left_sha256(path) else { return Ok(None) };
        let bytes = self.root.read(path)?;
        Ok(bytes.filter(|bytes| kops_agent_spec::digest::sha256_hex(bytes) == left))
    }
}

/// Overwrites and removes the stored state of a rolled-back change.
pub(crate) fn shred_begun(root: &Root) -> Result<()> {
    shred(root, BEGUN_PATH)
}

/// Overwrites and removes the stored states. They contain text from users, which may include a password that is not in the secret store.
pub(crate) fn shred_applied(root: &Root) -> Result<()> {
    [PATH, BEGUN_PATH].into_iter().try_for_each(|path| shred(root, path))
}

fn shred(root: &Root, path: &str) -> Result<()> {
    match root.parent(path)? {
        Some((dir, name)) => dir.shred(&name),
        None => Ok(()),
    }
}

fn write_kept(root: &Root, path: &str, kept: &Applied) -> Result<()> {
    let failed = |error: serde_json::Error| Error::path("write", path, std::io::Error::from(error));
    let bytes = serde_json::to_vec(kept).map_err(failed)?;
    if root.read(path)?.as_ref() == Some(&bytes) {
        return Ok(());
    }
    write_file(root, path, 0o600, None, &bytes)
}

fn kept(root: &Root, path: &str) -> Result<Option<Applied>> {
    let Some(bytes) = root.read(path)? else { return Ok(None) };
    let kept: Option<Applied> = serde_json::from_slice(&bytes).ok();
    Ok(kept.filter(|kept| kept.version == VERSION))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use kops_agent_plan::resource::Mode;

    use super::*;
    use kops_agent_pki::PemPair;

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
        Applied::new("c.example.com", "nodes", "hash", Sources::default(), &desired, &Store)
    }

    fn converged_to(host: &Host, config_hash: &str) {
        let mut record = crate::Record::default();
        record.config_hash = config_hash.into();
        record.write(&host.root).unwrap();
    }

    #[test]
    fn the_stored_state_has_certificates_and_no_keys_and_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::scratch(folder.path()).unwrap();
        let applied = applied();
        let file = folder.path().join(PATH.trim_start_matches('/'));
        host.keep_applied(&applied).unwrap();
        assert!(!file.exists(), "no state is stored before the first convergence");
        converged_to(&host, "hash");
        host.keep_applied(&applied).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("PRIVATE") && !text.contains("SECRET"), "{text}");

        assert_eq!(host.applied().unwrap().as_ref(), Some(&applied));
        assert_eq!(applied.desired().len(), 3);
        assert_eq!(applied.secrets(), BTreeSet::from(["admin"]));
        assert_eq!(applied.items(), BTreeSet::from([("ca", "7")]));
        assert_eq!(applied.file_of_key("ca", "7"), Some("/ca.key"));
        assert_eq!(applied.item_certificate("ca", "7"), Some("ca 7"));
        assert_eq!(applied.trusted_certificates("ca"), Some("all of ca"));

        converged_to(&host, "other");
        assert_eq!(host.applied().unwrap(), None, "the record names another configuration");
    }

    #[test]
    fn kept_states_name_their_files_whatever_the_record_says() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::scratch(folder.path()).unwrap();
        converged_to(&host, "hash");
        let begun = Applied { config_hash: "next".into(), ..applied() };
        host.keep_begun(&begun).unwrap();
        write_file(&host.root, PATH, 0o600, None, b"{").unwrap();
        assert_eq!(host.applied().unwrap(), None);
        assert_eq!(host.kept_states().unwrap(), [begun]);
    }

    #[test]
    fn a_release_that_serializes_resources_differently_reads_the_state() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::scratch(folder.path()).unwrap();
        let applied = applied();
        let mut record = crate::Record::default();
        record.config_hash = "hash".into();
        record.settled_state = Some(applied.attempt().digest().to_owned());
        record.write(&host.root).unwrap();
        host.keep_applied(&applied).unwrap();
        let file = folder.path().join(PATH.trim_start_matches('/'));
        let mut kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let text = kept["resources"].as_array_mut().unwrap().iter_mut().find(|one| one["path"] == "/text");
        text.unwrap()["mode"] = "0640".into();
        std::fs::write(&file, kept.to_string()).unwrap();
        assert!(host.applied().unwrap().is_some_and(|known| known != applied));

        record.settled_state = Some("another".into());
        record.write(&host.root).unwrap();
        assert_eq!(host.applied().unwrap(), None, "the record does not name this state as settled");
    }

    #[test]
    fn unknown_evidence_of_a_release_does_not_hide_the_state() {
        let mut kept = serde_json::to_value(applied()).unwrap();
        kept["writtenBy"] = serde_json::json!({"release": "1.50", "version": null, "evidence": "unheard of"});
        assert_eq!(serde_json::from_value::<Applied>(kept).unwrap(), applied());
    }

    #[test]
    fn an_unreadable_state_is_ignored() {
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
