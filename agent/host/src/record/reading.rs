//! Reading and writing the record across versions of the agent.
//!
//! Data of other versions stays in the record unchanged: a resource of an unknown kind stays claimed for the version
//! that made it. An unreadable record moves to a backup file. The machine does not count as new after that: existing
//! resources keep `was_there`, and changes stay guarded by a rollback, as on every working node.

use std::collections::BTreeMap;

use kops_agent_plan::resource::ResourceId;
use kops_agent_spec::invalid::Invalid;
use serde_json::{Map, Value};

use super::Record;
use super::claim::{Claim, Unknown};
use crate::error::{Error, Result};
use crate::first_failure;
use crate::root::Root;
use crate::staged::write_file;

/// The format version of the record. It is only raised if an older agent would misread the record. New kinds and fields do not require a
/// new version.
const VERSION: u64 = 1;
const VERSION_FIELD: &str = "version";
const RESOURCES: &str = "resources";
/// The path prefix of the backups of unreadable records. A number follows the prefix.
const KEPT_ASIDE: &str = "/var/lib/kops-agent/record.unreadable";
/// The maximum number of backups, so that a disk that corrupts every record does not fill up.
const MOST_KEPT_ASIDE: u32 = 9;

impl Record {
    /// Reads the record of this root. If there is no record, returns an empty record.
    pub(crate) fn read(root: &Root) -> Result<Record> {
        let mut record = match root.read(Record::PATH)? {
            None => Record::early(root)?,
            Some(bytes) => parse(&bytes).unwrap_or_else(|why| Record {
                unreadable: Some(format!(
                    "{} cannot be read, so kops-agent does not know what it left on this machine: {why}",
                    root.shown(Record::PATH)
                )),
                ..Record::default()
            }),
        };
        record.was_lost = record.unreadable.is_some() || root.metadata(&kept_aside(1))?.is_some();
        Ok(record)
    }

    /// Writes the record with mode 0600, because the hash of a short secret reveals the secret. If the old record is unreadable, backs it
    /// up.
    pub(crate) fn write(&self, root: &Root) -> Result<()> {
        if self.unreadable.is_some() {
            keep_aside(root)?;
        }
        self.write_to(root, Record::PATH)?;
        Record::forget_early(root)?;
        first_failure::forget(root)
    }

    pub(super) fn write_to(&self, root: &Root, path: &str) -> Result<()> {
        let failed = |error: serde_json::Error| Error::path("write", path, std::io::Error::from(error));
        let mut value = serde_json::to_value(self).map_err(failed)?;
        if let Value::Object(fields) = &mut value {
            fields.insert(VERSION_FIELD.into(), VERSION.into());
            if let Some(Value::Object(resources)) = fields.get_mut(RESOURCES) {
                // Write back the entries that this version could not parse. If this version has recorded the same resource, keep the new
                // entry.
                for (id, claim) in &self.unknown.resources {
                    resources.entry(id.clone()).or_insert_with(|| claim.clone());
                }
            }
        }
        let mut bytes = serde_json::to_vec(&value).map_err(failed)?;
        bytes.push(b'\n');
        write_file(root, path, 0o600, None, &bytes)
    }

    /// The recorded resources that this version of the agent does not know.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = &str> {
        self.unknown.resources.keys().map(String::as_str)
    }
}

pub(super) fn parse(bytes: &[u8]) -> Result<Record, Invalid> {
    let mut fields: Map<String, Value> =
        serde_json::from_slice(bytes).map_err(|error| Invalid::new(error.to_string()))?;
    let version = fields.remove(VERSION_FIELD).and_then(|version| version.as_u64()).unwrap_or_default();
    let unknown = match fields.get_mut(RESOURCES) {
        Some(Value::Object(resources)) => take_unknown(resources),
        _ => Map::new(),
    };
    let mut record: Record =
        serde_json::from_value(Value::Object(fields)).map_err(|error| match version {
            newer if newer > VERSION => Invalid::new(format!(
                "{error}; a newer kops-agent wrote the record (version {newer}, but this kops-agent reads \
             version {VERSION}); use the newer kops-agent"
            )),
            _ => Invalid::new(error.to_string()),
        })?;
    record.unknown = Unknown { resources: unknown };
    Ok(record)
}

fn take_unknown(resources: &mut Map<String, Value>) -> Map<String, Value> {
    let is_known = |id: &str, claim: &Value| {
        serde_json::from_value::<ResourceId>(Value::String(id.to_owned())).is_ok()
            && serde_json::from_value::<Claim>(claim.clone()).is_ok()
    };
    let (known, unknown): (BTreeMap<_, _>, BTreeMap<_, _>) =
        std::mem::take(resources).into_iter().partition(|(id, claim)| is_known(id, claim));
    resources.extend(known);
    unknown.into_iter().collect()
}

/// Copies an unreadable record to a backup.
fn keep_aside(root: &Root) -> Result<()> {
    let Some(bytes) = root.read(Record::PATH)? else { return Ok(()) };
    if parse(&bytes).is_ok() {
        return Ok(());
    }
    let mut number = 1;
    while number < MOST_KEPT_ASIDE && root.metadata(&kept_aside(number))?.is_some() {
        number += 1;
    }
    write_file(root, &kept_aside(number), 0o600, None, &bytes)
}

fn kept_aside(number: u32) -> String {
    format!("{KEPT_ASIDE}-{number}")
}

#[cfg(test)]
mod tests {
    use kops_agent_plan::diff::OwnedNow;
    use kops_agent_plan::resource::Kind;

    use super::*;

    const OF_A_NEWER_AGENT: &str = r#"{
        "version": 2, "configHash": "hash", "lastApplied": {"a": [1]},
        "resources": {
            "file /etc/x": {"left": {"file": {"sha256": null, "metadata": METADATA}}},
            "file /etc/y": {"left": {"extents": [1, 2]}},
            "quadlet web": {"left": {"file": {}}},
            "host api": {"left": "hostsEntry"}
        }
    }"#;

    fn machine(record: &str) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        write_file(&root, "/etc/x", 0o644, None, b"x").unwrap();
        let metadata = serde_json::to_string(&root.metadata("/etc/x").unwrap().unwrap()).unwrap();
        let record = record.replace("METADATA", &metadata);
        write_file(&root, Record::PATH, 0o600, None, record.as_bytes()).unwrap();
        (folder, root)
    }

    #[test]
    fn data_of_a_newer_agent_is_kept_and_the_rest_is_read() {
        let (_folder, root) = machine(OF_A_NEWER_AGENT);
        let record = Record::read(&root).unwrap();
        assert_eq!(record.config_hash, "hash");
        assert_eq!(record.unknown().collect::<Vec<_>>(), ["file /etc/y", "quadlet web"]);
        let owned = record.owned(&root, None).unwrap();
        assert_eq!(owned[&ResourceId::new(Kind::File, "/etc/x")].now, OwnedNow::AsLeft);
        record.write(&root).unwrap();
        let written: Value = serde_json::from_slice(&root.read(Record::PATH).unwrap().unwrap()).unwrap();
        assert_eq!(written["resources"]["quadlet web"]["left"]["file"], serde_json::json!({}));
        assert_eq!(written["resources"]["file /etc/y"]["left"]["extents"], serde_json::json!([1, 2]));
        assert_eq!(written["resources"].as_object().unwrap().len(), 4);
        assert_eq!(written["lastApplied"], serde_json::json!({"a": [1]}));
        assert_eq!(written["version"], 1);
        assert_eq!(Record::read(&root).unwrap(), record);
    }

    #[test]
    fn a_claim_of_this_version_wins_over_a_claim_of_another() {
        let (_folder, root) = machine(OF_A_NEWER_AGENT);
        let mut record = Record::read(&root).unwrap();
        let own = Claim { was_there: true, left: None, begun: None };
        record.resources.insert(ResourceId::new(Kind::File, "/etc/y"), own.clone());
        record.write(&root).unwrap();
        let next = Record::read(&root).unwrap();
        assert_eq!(next.resources.get(&ResourceId::new(Kind::File, "/etc/y")), Some(&own));
        assert_eq!(next.unknown().collect::<Vec<_>>(), ["quadlet web"]);
    }

    #[test]
    fn a_record_without_a_version_is_read() {
        let (_folder, root) = machine(r#"{"configHash": "hash", "resources": {}}"#);
        let record = Record::read(&root).unwrap();
        assert_eq!((record.config_hash.as_str(), record.was_lost), ("hash", false));
    }

    #[test]
    fn an_unreadable_record_is_reported_and_backed_up() {
        for spoilt in ["{\"configHash\": \"ha", "", r#"{"version": 9, "configHash": ["hash"]}"#] {
            let (_folder, root) = machine(spoilt);
            let mut record = Record::read(&root).unwrap();
            let why = record.unreadable.clone().unwrap();
            assert!(record.was_lost && why.contains("record.json cannot be read, so kops-agent "), "{why}");
            assert_eq!(
                why.contains("a newer kops-agent wrote the record"),
                spoilt.contains("version"),
                "{why}"
            );
            // A run writes the record twice. The second write must not replace the backup of the unreadable record.
            record.write(&root).unwrap();
            record.config_hash = "hash".into();
            record.write(&root).unwrap();
            let kept = root.read("/var/lib/kops-agent/record.unreadable-1").unwrap().unwrap();
            assert_eq!(String::from_utf8(kept).unwrap(), spoilt);
            assert!(root.read("/var/lib/kops-agent/record.unreadable-2").unwrap().is_none());
            let next = Record::read(&root).unwrap();
            assert!(next.unreadable.is_none() && next.was_lost && next.config_hash == "hash");
        }
    }
}
