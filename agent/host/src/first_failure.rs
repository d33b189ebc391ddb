//! Stores why the first run failed on a machine where no run has written anything. Such a machine has no record yet.

use kops_agent_spec::failure::Kind;
use serde_json::{from_slice, to_vec};

use crate::error::{Error, Result};
use crate::host::Host;
use crate::record::{Failure, Record};
use crate::root::Root;
use crate::staged::{remove_file, write_file};

/// The path of the note about the first failure, below the root. The note is read only if there is no record.
const PATH: &str = "/var/lib/kops-agent/first-failure.json";

impl Host {
    /// Records, for `status`, that a run failed before any run has written a record. Fails if another run holds the lock.
    pub fn note_first_failure(&self, kind: Kind, problem: &str) -> Result<()> {
        let _lock = self.lock()?;
        let failure = Failure::new(self.timestamp(), kind, problem);
        let json =
            to_vec(&failure).map_err(|error| Error::path("write", PATH, std::io::Error::other(error)))?;
        // The problem may quote a store or mirror, so only root may read the note.
        write_file(&self.root, PATH, 0o600, None, &json)
    }
}

/// Why the last run failed. This comes from the record, or from the note at `PATH` if there is no record.
pub(crate) fn last_failure(root: &Root, record: &Record) -> Result<Option<Failure>> {
    if root.metadata(Record::PATH)?.is_some() {
        return Ok(record.failure.clone());
    }
    // If the note is unreadable, `status` still reports everything else.
    Ok(root.read(PATH)?.and_then(|json| from_slice(&json).ok()))
}

/// Removes the note, because the machine now has a record.
pub(crate) fn forget(root: &Root) -> Result<()> {
    remove_file(root, PATH)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_failure_before_any_record_is_shown_until_a_record_exists() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::scratch(folder.path()).unwrap();
        host.note_first_failure(Kind::StoreForbidden, "the store answers 403").unwrap();
        let status = host.status().unwrap();
        let failure = status.failure.as_ref().unwrap();
        assert_eq!((failure.problem.as_str(), failure.code.as_str()), ("the store answers 403", "KA2002"));
        assert!(status.never_converged && !status.converged, "{status:?}");

        Record::default().write(&host.root).unwrap();
        assert_eq!(host.status().unwrap().failure, None);
        std::fs::remove_file(folder.path().join("var/lib/kops-agent/record.json")).unwrap();
        assert_eq!(host.status().unwrap().failure, None, "the record did not replace the old note");
    }
}
