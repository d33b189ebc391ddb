//! The note about programs of the agent on this machine: the state before the last switch, and which programs have not been checked since
//! they were put in place. The process that switches writes it, and its successor reads it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::services::Service;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::staged::write_file;
use crate::system::packages::PackageVersion;

const PATH: &str = "/var/lib/kops-agent/program.json";

#[derive(Clone, Copy, Debug)]
pub struct OrderedProgram<'a> {
    pub sha256: &'a str,
    /// The hash of the state store's program file that names this program.
    pub file: &'a str,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Note {
    /// The SHA-256 of the program that was last installed or checked.
    sha256: String,
    /// The hash of the state store's program file that named this program.
    file: String,
    /// The services that were unhealthy before the switch to this program.
    pub(super) unhealthy: Vec<String>,
    /// The agent's own resources that this program changes. The previous program recorded these resources before the switch.
    own: Vec<String>,
    /// The SHA-256 of the program before the switch. Empty if it is unknown.
    previous: String,
    /// The packages of the agent before the switch. Empty if no package owns the program.
    packages: Vec<PackageVersion>,
    /// Whether a switch of these packages is unfinished: the new program has not begun its check, and the old packages were not restored. A
    /// killed process causes this state.
    is_unfinished: bool,
    /// The SHA-256 of each program that was installed or checked and whose last check has not succeeded.
    unchecked: BTreeSet<String>,
}

impl Note {
    /// This note if it is about the program with this SHA-256, and otherwise an empty note.
    fn for_program(self, sha256: &str) -> Note {
        if self.sha256 == sha256 { self } else { Note::default() }
    }
}

impl Host {
    /// Notes the state before the switch to a program: which of these services are unhealthy, which resources of the agent (`own`) the
    /// program changes, which packages the switch replaces, and the SHA-256 of the present program (`present`). The new program counts as
    /// unchecked.
    pub fn note_switch(
        &self,
        to: OrderedProgram<'_>,
        services: &[Service],
        own: Vec<String>,
        packages: Vec<PackageVersion>,
        present: &str,
    ) -> Result<()> {
        let unhealthy = services.iter().filter(|service| !service.was_healthy);
        let unhealthy = unhealthy.map(|service| service.unit.clone()).collect();
        let earlier = self.note()?;
        // If the last switch is unfinished, the present program may be neither the old nor the new program of that switch. Then keep the
        // recorded hash of the old program.
        let previous = if earlier.is_unfinished { earlier.previous } else { present.to_owned() };
        let is_unfinished = !packages.is_empty();
        let unchecked = earlier.unchecked;
        let note = Note { unhealthy, own, previous, packages, is_unfinished, unchecked, ..Note::default() };
        self.write_unchecked(to, note)
    }

    /// Notes that a program counts as unchecked, before the check of the program. Also notes that the switch to this program is finished,
    /// because the program is completely installed.
    pub fn note_check(&self, of: OrderedProgram<'_>) -> Result<()> {
        let note = self.note()?;
        let unchecked = note.unchecked.clone();
        self.write_unchecked(of, Note { unchecked, is_unfinished: false, ..note.for_program(of.sha256) })
    }

    /// Notes that the check of the program with this SHA-256 has succeeded.
    pub fn note_checked(&self, sha256: &str) -> Result<()> {
        let mut note = self.note()?;
        note.unchecked.remove(sha256);
        self.write_note(&note)
    }

    /// Notes that the packages that the agent had before the switch are installed again.
    pub(super) fn note_packages_restored(&self) -> Result<()> {
        self.write_note(&Note { is_unfinished: false, ..self.note()? })
    }

    /// True if the program with this SHA-256 was installed or checked, but its last check has not succeeded. While a switch of packages is
    /// unfinished and the old packages are not restored, every program counts as unchecked.
    pub fn is_unchecked(&self, sha256: &str) -> Result<bool> {
        let Note { unchecked, is_unfinished, packages, .. } = self.note()?;
        Ok(unchecked.contains(sha256) || is_unfinished && !self.has_packages(&packages)?)
    }

    /// The packages of the agent before the last switch. Empty if no package owned the program.
    pub fn previous_packages(&self) -> Result<Vec<PackageVersion>> {
        Ok(self.note()?.packages)
    }

    /// The SHA-256 of the program before the last switch. Empty if it is unknown.
    pub fn previous_sha256(&self) -> Result<String> {
        Ok(self.note()?.previous)
    }

    /// The packages of the agent before an unfinished switch. Empty if the last switch is finished.
    pub fn unfinished_packages(&self) -> Result<Vec<PackageVersion>> {
        let Note { packages, is_unfinished, .. } = self.note()?;
        Ok(if is_unfinished { packages } else { Vec::new() })
    }

    /// Whether `program` is the program that was last installed or checked. Compares its SHA-256 and the hash of its program file.
    pub fn is_noted(&self, program: OrderedProgram<'_>) -> Result<bool> {
        let note = self.note()?;
        Ok((note.sha256.as_str(), note.file.as_str()) == (program.sha256, program.file))
    }

    /// Like [`Host::is_noted`], but compares only the SHA-256 of the program, and not the hash of the program file.
    pub fn is_noted_for_any_file(&self, sha256: &str) -> Result<bool> {
        Ok(self.note()?.sha256 == sha256)
    }

    /// The agent's resources that the program with this SHA-256 may change on this node. The previous program recorded these resources.
    pub fn noted_own(&self, sha256: &str) -> Result<Vec<String>> {
        Ok(self.noted(sha256)?.own)
    }

    /// The recorded note, if it is about the program with this SHA-256. Otherwise, an empty note.
    pub(super) fn noted(&self, sha256: &str) -> Result<Note> {
        Ok(self.note()?.for_program(sha256))
    }

    /// The note. An unreadable note counts as empty, so it names no service that was unhealthy before the switch. Then all services must
    /// be healthy.
    fn note(&self) -> Result<Note> {
        let note = self.root.read(PATH)?.unwrap_or_default();
        Ok(serde_json::from_slice(&note).unwrap_or_default())
    }

    fn write_unchecked(&self, program: OrderedProgram<'_>, mut note: Note) -> Result<()> {
        note.unchecked.insert(program.sha256.to_owned());
        self.write_note(&Note { sha256: program.sha256.to_owned(), file: program.file.to_owned(), ..note })
    }

    fn write_note(&self, note: &Note) -> Result<()> {
        let text = serde_json::to_vec(note).map_err(|error| Error::path("write", PATH, error))?;
        write_file(&self.root, PATH, 0o600, None, &text)
    }
}
