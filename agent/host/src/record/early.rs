//! Claims on the units that run before the node is known: the timers, and protokube in a gossip cluster.
//!
//! A record would say that a run has begun to make the node, and would hide from the first run what other programs
//! left on the machine. So these claims have a file of their own until the first record takes them over.

use crate::error::Result;
use crate::root::Root;
use crate::staged::remove_file;

use super::Record;

/// The path, below the root, of the file that records early units: units that are started before the node's other resources are known. The
/// file is only read if there is no record.
const PATH: &str = "/var/lib/kops-agent/early-units.json";

impl Record {
    /// A record of the units in `early-units.json`, for a machine that has no record yet. A file that cannot be parsed counts as empty.
    pub(super) fn early(root: &Root) -> Result<Record> {
        let early = root.read(PATH)?.and_then(|bytes| super::reading::parse(&bytes).ok());
        Ok(early.map_or_else(Record::default, |early| Record { is_early: true, ..early }))
    }

    /// Writes the early units into the record. If there is no record, writes them into `early-units.json`.
    pub(crate) fn write_early(&self, root: &Root) -> Result<()> {
        match root.metadata(Record::PATH)? {
            Some(_) => self.write(root),
            None => self.write_to(root, PATH),
        }
    }

    /// Removes `early-units.json`. The record now contains the early units.
    pub(super) fn forget_early(root: &Root) -> Result<()> {
        remove_file(root, PATH)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;
    use std::fs;

    use kops_agent_plan::diff::{Action, Plan, Stage, Step};
    use kops_agent_plan::resource::{DesiredState, File};

    use super::*;
    use crate::host::Host;
    use crate::staged::write_file;

    #[test]
    fn early_claims_are_no_record_until_a_record_takes_them_over() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::scratch(folder.path()).unwrap();
        let root = &host.root;
        let mut early = DesiredState::default();
        early.add(File::text("/early", "early"));
        let id = early.iter().next().unwrap().0.clone();
        let step =
            Step { stage: Stage::Files, resource: id.clone(), action: Action::Create, changes: vec![] };
        let plan = Plan { steps: vec![step], ..Plan::default() };
        let mut record = host.record().unwrap();
        record.claim(root, &plan, &early, &BTreeMap::new()).unwrap();
        record.write_early(root).unwrap();
        write_file(root, "/early", 0o644, None, b"early").unwrap();
        record.settle_only(root, std::iter::once(&id), &early, &BTreeMap::new()).unwrap();
        record.write_early(root).unwrap();

        let record = host.record().unwrap();
        assert!(record.is_first_sight() && record.is_own(&id), "{record:?}");
        assert!(root.metadata(Record::PATH).unwrap().is_none());
        let status = host.status().unwrap();
        assert!(status.never_converged && !status.unfinished && status.changed.is_empty(), "{status:?}");

        let mut record = record;
        record.settle(root, &early, &BTreeMap::new()).unwrap();
        record.write(root).unwrap();
        let record = host.record().unwrap();
        assert!(!record.is_first_sight() && record.is_own(&id), "{record:?}");
        assert!(root.metadata(PATH).unwrap().is_none());
    }

    #[test]
    fn an_unreadable_file_of_early_claims_counts_as_missing() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::scratch(folder.path()).unwrap();
        fs::create_dir_all(folder.path().join("var/lib/kops-agent")).unwrap();
        fs::write(folder.path().join(PATH.trim_start_matches('/')), "{").unwrap();
        assert_eq!(host.record().unwrap(), Record::default());
    }
}
