//! The state that was last applied: what a machine is put right by while its store cannot be read, or has a
//! configuration that is for other machines.
//!
//! It is kept beside the record, for root's eyes only. Private keys and secrets are references in it, as in any desired
//! state; of keysets it has the certificates. A state that is about to be applied is kept in a file of its own before the
//! first write, and takes the place of the last one once it is reached. The record says which state was settled, and which
//! is begun: whatever interrupts a run, neither a state that was not reached nor one that is older than the machine is
//! taken for the last one.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_plan::kops_release::WrittenBy;
use kops_agent_plan::resource::{Content, DesiredState, File, Resource, ResourceId, SecretPiece};
use serde::{Deserialize, Deserializer, Serialize};

use crate::attempt::Attempt;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::rollback::journal::Journal;
use crate::root::Root;
use crate::secrets::{Secrets, pieces, secrets_of};
use crate::staged::write_file;

/// Where it is, below the root.
const PATH: &str = "/var/lib/kops-agent/applied.json";
/// Where the state is that a run is about to reach.
const BEGUN_PATH: &str = "/var/lib/kops-agent/begun.json";
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
    pub cluster: String,
    pub instance_group: String,
    /// Which machine it was applied to ([`kops_agent_spec::facts::Facts::machine`]).
    #[serde(default)]
    pub machine: String,
    /// `NodeupConfigHash` of the configuration.
    pub config_hash: String,
    /// Whether the cluster spec gave that configuration, byte for byte, and not only the file of it: where it gives another
    /// one later, that is a newer one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_proven: bool,
    /// The kOps release that wrote the configuration; `None` where an earlier version of the agent did not note it.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    pub written_by: Option<WrittenBy>,
    /// Where its keys and secrets are read.
    pub sources: Sources,
    /// The certificates of keysets in PEM, as far as the state needs them.
    keysets: BTreeMap<String, PublicKeyset>,
    resources: Vec<Resource>,
    /// Where the spec has components keep data ([`DesiredState::data_folders`]).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) data_folders: BTreeSet<String>,
    /// What told the state from all others when it was applied: another version of the agent may write resources in another
    /// way, and would not know it again.
    #[serde(default)]
    digest: String,
}

/// Another version of the agent may know other evidence, which is no reason to lose the state.
fn if_readable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<WrittenBy>, D::Error> {
    Ok(serde_json::from_value(serde_json::Value::deserialize(deserializer)?).ok())
}

/// A change of a node that was begun and has not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The state that it goes to; `None` where that is not kept, as by earlier versions of the agent.
    pub state: Option<Applied>,
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
            is_proven: false,
            written_by: None,
            sources,
            keysets,
            resources: desired.iter().map(|(_, resource)| resource.clone()).collect(),
            data_folders: desired.data_folders().clone(),
            digest: Attempt::new(desired, config_hash).digest().to_owned(),
        }
    }

    /// The same, as it was applied to this machine.
    pub fn to_machine(self, machine: String) -> Applied {
        Applied { machine, ..self }
    }

    /// The same, where it is known whether the cluster spec gave its configuration.
    pub fn proven(self, is_proven: bool) -> Applied {
        Applied { is_proven, ..self }
    }

    /// The same, as this kOps release wrote its configuration.
    pub fn written_by(self, written_by: Option<WrittenBy>) -> Applied {
        Applied { written_by, ..self }
    }

    fn attempt(&self) -> Attempt {
        match self.digest.as_str() {
            "" => Attempt::new(&self.desired(), &self.config_hash),
            digest => Attempt::known(digest, &self.config_hash),
        }
    }

    pub fn desired(&self) -> DesiredState {
        let mut desired = DesiredState::default();
        self.resources.iter().for_each(|resource| desired.add(resource.clone()));
        self.data_folders.iter().for_each(|folder| desired.keeps_data_in(folder));
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

    /// The items of keysets that sign its certificates, as keyset and id.
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

impl Host {
    /// What was last applied; `None` where nothing was, and where what is kept of it is not of the state that the record
    /// names, or cannot be read, as after a newer release of the agent.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn applied(&self) -> Result<Option<Applied>> {
        let record = self.record()?;
        if record.config_hash.is_empty() {
            return Ok(None);
        }
        // A run may have been killed once the record had it and before it took its place.
        for path in [PATH, BEGUN_PATH] {
            let kept = kept(&self.root, path)?.filter(|kept| kept.config_hash == record.config_hash);
            if let Some(kept) = kept.filter(|kept| record.is_settled_with(&kept.attempt())) {
                return Ok(Some(kept));
            }
        }
        Ok(None)
    }

    /// Every state that is kept of this machine, whatever the record says of it: the one that was last applied, one that was
    /// begun, and what an older one of these has left. For what files may be secret on it, and for nothing else.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn kept_states(&self) -> Result<Vec<Applied>> {
        let mut states = Vec::new();
        for path in [PATH, BEGUN_PATH] {
            states.extend(kept(&self.root, path)?);
        }
        Ok(states)
    }

    /// The change of a node that a run has begun and not ended, if there is one: one that puts the last state right is
    /// none, nor is one that is being taken back.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn unfinished_change(&self) -> Result<Option<Unfinished>> {
        let record = self.record()?;
        let is_taken_back = Journal::read(&self.root)?.is_some_and(|journal| journal.is_taken_back());
        if record.config_hash.is_empty() || !record.has_begun_change() || is_taken_back {
            return Ok(None);
        }
        let kept = kept(&self.root, BEGUN_PATH)?;
        let kept = kept.filter(|kept| record.begun_state.as_deref() == Some(kept.attempt().digest()));
        Ok(Some(Unfinished { state: kept }))
    }

    /// Those of these resources that an interrupted run was to write and has not.
    ///
    /// # Errors
    /// They cannot be looked at.
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

    /// Keeps what is about to be applied to a node, for a run that goes on with it. To be called under the lock under
    /// which it is.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep_begun(&self, begun: &Applied) -> Result<()> {
        // A machine that has not converged yet has nothing that this could be told from.
        if self.record()?.config_hash.is_empty() {
            return Ok(());
        }
        write_kept(&self.root, BEGUN_PATH, begun)
    }

    /// Keeps what was applied, if it is what the record says was settled. To be called under the lock under which it was.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep_applied(&self, applied: &Applied) -> Result<()> {
        let record = self.record()?;
        if record.config_hash != applied.config_hash || !record.is_settled_with(&applied.attempt()) {
            return Ok(());
        }
        write_kept(&self.root, PATH, applied)?;
        shred(&self.root, BEGUN_PATH)
    }

    /// The content of a file that is as the agent left it; `None` where it is not, or is none of the agent's.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_unchanged(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let record = self.record()?;
        let Some(left) = record.left_sha256(path) else { return Ok(None) };
        let bytes = self.root.read(path)?;
        Ok(bytes.filter(|bytes| kops_agent_plan::digest::sha256_hex(bytes) == left))
    }
}

/// Overwrites and removes what is kept of a change that is taken back.
pub(crate) fn shred_begun(root: &Root) -> Result<()> {
    shred(root, BEGUN_PATH)
}

/// Overwrites and removes what is kept of states: texts that users gave are in them, and those may hold a password
/// that is in none of the store's secrets.
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
    // A run that has nothing to do writes nothing.
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
        let file = folder.path().join(PATH.trim_start_matches('/'));
        host.keep_applied(&applied).unwrap();
        assert!(!file.exists(), "nothing was converged to yet");
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
        assert_eq!(host.applied().unwrap(), None, "the record is of another configuration");
    }

    #[test]
    fn every_state_that_is_kept_tells_of_files_whatever_the_record_says() {
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
    fn it_is_known_again_by_a_release_that_writes_resources_in_another_way() {
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
        // As if this release had a name for what the one that wrote it left out.
        text.unwrap()["mode"] = "0640".into();
        std::fs::write(&file, kept.to_string()).unwrap();
        assert!(host.applied().unwrap().is_some_and(|known| known != applied));

        record.settled_state = Some("another".into());
        record.write(&host.root).unwrap();
        assert_eq!(host.applied().unwrap(), None, "that was never settled");
    }

    #[test]
    fn evidence_that_is_not_known_hides_no_state() {
        let mut kept = serde_json::to_value(applied()).unwrap();
        kept["writtenBy"] = serde_json::json!({"release": "1.50", "version": null, "evidence": "unheard of"});
        assert_eq!(serde_json::from_value::<Applied>(kept).unwrap(), applied());
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
