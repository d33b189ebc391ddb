//! Records which files are in the archives that this machine downloaded. Decisions use these lists. Before an archive
//! is downloaded, decisions assume the files of the release.

use std::collections::BTreeSet;

use kops_agent_plan::resource::{ArchiveFiles, DesiredState};

use crate::error::{Error, Result};
use crate::host::Host;
use crate::root::Root;
use crate::staged::write_file;

impl Host {
    /// The path of the file lists of archives, below the root.
    pub const ARCHIVES: &'static str = "/var/lib/kops-agent/archives.json";

    /// Records the files of verified archives.
    pub(crate) fn note_archives(&self, seen: ArchiveFiles) -> Result<()> {
        let mut known = read(&self.root)?;
        if seen.iter().all(|(archive, files)| known.get(archive) == Some(files)) {
            return Ok(());
        }
        known.extend(seen);
        let json = serde_json::to_vec(&known)
            .map_err(|error| Error::path("write", Host::ARCHIVES, std::io::Error::other(error)))?;
        write_file(&self.root, Host::ARCHIVES, 0o644, None, &json)
    }

    /// Fails if an archive has other files than `desired` assumes.
    pub(crate) fn refuse_other_files(&self, desired: &DesiredState) -> Result<()> {
        let known = read(&self.root)?;
        for (archive, kind) in desired.assumed_archives() {
            let Some(files) = known.get(archive) else { continue };
            let taken = kind.taken(files.iter().map(String::as_str));
            let members: BTreeSet<&str> = taken.values().map(String::as_str).collect();
            if members != desired.members_of(archive) {
                return Err(Error::OtherFiles { archive: archive.clone() });
            }
        }
        Ok(())
    }
}

/// Reads the file lists of archives. If the lists cannot be parsed, returns no lists. Then decisions assume the files of the Kubernetes
/// release, as they do before an archive is downloaded.
fn read(root: &Root) -> Result<ArchiveFiles> {
    let noted = root.read(Host::ARCHIVES)?.unwrap_or_default();
    Ok(serde_json::from_slice(&noted).unwrap_or_default())
}
