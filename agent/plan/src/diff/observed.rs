//! The observed state of a machine, in the form that a comparison needs.

use std::collections::BTreeMap;

use super::reading::Reading;
use crate::resource::{FreeText, Mode, Resource, ResourceId};

/// The observations of desired resources. A resource without an entry is missing.
pub type ObservedState = BTreeMap<ResourceId, Observed>;

/// The observation at the place of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// A resource that exists, with its present properties.
    Resource(Resource),
    File(ObservedFile),
    Unit(ObservedUnit),
    Certificate(ObservedCertificate),
    /// An object of another type, such as `a directory`.
    Other(String),
}

impl Observed {
    /// Forgets which part of the present text is free text. Then the desired text decides what a diff hides.
    pub fn show_free_text(&mut self) {
        match self {
            Observed::File(file) => file.free_text = None,
            Observed::Unit(unit) => unit.free_text = None,
            _ => {}
        }
    }
}

/// Owner, group and mode of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub mode: Mode,
    /// Owning user, or its uid if it has no name.
    pub owner: String,
    /// Owning group, or its gid if it has no name.
    pub group: String,
}

impl Access {
    /// The access of a file that everybody can read and only root can write.
    pub fn of_roots() -> Access {
        Access { mode: Mode::FILE, owner: "root".into(), group: "root".into() }
    }
}

/// An observed regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedFile {
    pub access: Access,
    /// Lower-case hexadecimal SHA-256 of the content.
    pub sha256: String,
    /// Details of the content besides its hash.
    pub content: ObservedContent,
    /// SHA-256 of the content for which the file's commands ([`crate::resource::File::on_change`]) last completed.
    pub commands_ran_for: Option<String>,
    /// How other bytes can replace the content. `None` if only the same bytes can.
    pub serves: Option<Serves>,
    /// The value of [`super::pod_reading`] at the last start of this file's static pod.
    pub pod_mounted: Option<Reading>,
    /// The free text in the content. `None` if the agent did not write this text. Then the desired file decides.
    pub free_text: Option<FreeText>,
}

/// Describes which other bytes serve a file's readers equally well. A file whose certificate is invalid has no such description, because it
/// must be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serves {
    /// A digest that all equivalent contents share.
    pub digest: String,
    /// The renewal time of the certificate in the content, in seconds since 1970.
    pub due: Option<u64>,
}

/// Details of a file's content besides its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedContent {
    Text(String),
    Bytes,
    /// The content was unpacked from this archive, and is unchanged since then.
    Member {
        /// SHA-256 of the archive.
        archive: String,
        member: String,
    },
    /// The observer compared the content, because it has secrets, or because another text has the same meaning ([`super::meaning`]).
    Compared {
        as_desired: bool,
    },
    /// The desired content is unknown now, for example because the store denies access to a secret. The present content counts as desired.
    Unknown {
        /// Why the desired content is unknown.
        why: String,
        /// Whether the file is known to differ from the agent's last version, or is missing and only treated as present.
        differs: bool,
    },
}

/// Whether a unit starts at boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enablement {
    Enabled,
    /// The unit does not start at boot.
    Disabled,
    /// The unit cannot be enabled: it has no `[Install]` section, or systemd generated it.
    Static,
}

/// A unit as systemd reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedUnit {
    /// The text at the path where the agent writes units. `None` if there is no file.
    pub text: Option<String>,
    /// Whether somebody changed the text after the agent wrote it. Then only exactly the desired text is correct.
    pub edited: bool,
    /// The path of the file from which systemd loaded the unit, or of the file to write.
    pub path: String,
    /// The desired path of the file. It differs from `path` if an earlier version of the agent wrote the file there.
    pub belongs: String,
    /// Owner, group and mode of the file with the text.
    pub access: Option<Access>,
    pub enablement: Enablement,
    /// Whether the unit runs, or has completed its task.
    pub running: bool,
    /// Whether a start of the unit is in progress.
    pub starting: bool,
    /// The value of [`super::unit_reading`] when the agent last started the unit.
    pub stamp: Option<Reading>,
    /// The operator's override of the unit.
    pub overridden: Option<Override>,
    /// The free text in `text`. `None` if the agent did not write `text`.
    pub free_text: Option<FreeText>,
}

/// An operator's override of a unit, which systemd prefers (systemd.unit(5)), with its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Override {
    /// A mask: systemd never starts the unit.
    Masked(String),
    Unit(String),
}

impl Override {
    pub fn path(&self) -> &str {
        match self {
            Override::Masked(path) | Override::Unit(path) => path,
        }
    }
}

/// A certificate in files of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedCertificate {
    /// SHA-256 of the certificate.
    pub fingerprint: String,
    /// Why the certificate must be replaced. `None` if it is valid.
    pub replace: Option<String>,
    /// Whether the certificate's age is the only reason to replace it: it has expired, or expires soon.
    pub is_due: bool,
    /// A problem of the certificate that cannot be fixed now, because no issuer is available.
    pub stuck: Option<String>,
}
