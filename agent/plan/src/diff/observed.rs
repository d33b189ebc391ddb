//! The observed state of a machine, in the form that a comparison needs.

use std::collections::BTreeMap;

use super::reading::Reading;
use crate::resource::{FreeText, Mode, Resource, ResourceId};

/// The observations of desired resources. A resource without an entry is missing.
pub type ObservedState = BTreeMap<ResourceId, Observed>;

/// The object at the path or name of a desired resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// A resource that exists, with its present properties.
    Resource(Resource),
    File(ObservedFile),
    Unit(ObservedUnit),
    Certificate(ObservedCertificate),
    /// An object whose type differs from the resource's type, such as `a directory`.
    Other(String),
}

impl Observed {
    /// Forgets which part of the present text is free text, so that the desired text decides what a diff hides.
    pub fn show_free_text(&mut self) {
        match self {
            Observed::File(file) => file.free_text = None,
            Observed::Unit(unit) => unit.free_text = None,
            _ => {}
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub mode: Mode,
    /// Owning user, or its uid if it has no name.
    pub owner: String,
    /// Owning group, or its gid if it has no name.
    pub group: String,
}

impl Access {
    /// The access of a file that root owns, that everybody can read, and that only root can write.
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
    /// Describes other contents that are equivalent for the file's readers. `None` if no other content is equivalent.
    pub serves: Option<Serves>,
    /// The value of [`super::pod_reading`] at the last start of this file's static pod.
    pub pod_mounted: Option<Reading>,
    /// The free text in the content. If the agent did not write the content, this is `None`, and the desired file decides which parts of
    /// the content are hidden.
    pub free_text: Option<FreeText>,
}

/// Describes the contents of a file that its readers treat as equivalent. A file with an invalid certificate has no `Serves`, because the
/// file must be replaced.
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
    /// The content was unpacked from this archive, and has not changed since then.
    Member {
        /// SHA-256 of the archive.
        archive: String,
        member: String,
    },
    /// The observer itself compared the content with the desired content, because a plan cannot compare them: The content has secrets, or a
    /// different text can have the same meaning ([`super::meaning`]).
    Compared {
        as_desired: bool,
    },
    /// The desired content is unknown now, for example because the store denies access to a secret. The present content is treated as
    /// desired.
    Unknown {
        /// Why the desired content is unknown.
        why: String,
        /// Whether the content is known to differ from the content that the agent last wrote. Also true for a missing file that is treated
        /// as present.
        differs: bool,
    },
}

/// Whether a unit starts at boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enablement {
    Enabled,
    Disabled,
    /// The unit cannot be enabled: it has no `[Install]` section, or systemd generated it.
    Static,
}

/// A unit as systemd reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedUnit {
    /// The text of the file at the path where the agent writes units. `None` if the file does not exist.
    pub text: Option<String>,
    /// Whether a user or program changed the text after the agent wrote it. If so, only a text that equals the desired text is correct.
    pub edited: bool,
    /// The path at which the agent reads and writes the unit's file.
    pub path: String,
    /// The desired path of the unit's file. It differs from `path` if an earlier version of the agent wrote the file to `path`.
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
    /// The override of the unit by an operator, if there is one.
    pub overridden: Option<Override>,
    /// The free text in `text`. `None` if the agent did not write `text`.
    pub free_text: Option<FreeText>,
}

/// An operator's override of a unit, with its path. systemd loads the override instead of the unit's file (systemd.unit(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Override {
    /// A mask, with its path. systemd never starts a masked unit.
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

/// A certificate that was observed in files of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedCertificate {
    /// SHA-256 of the certificate.
    pub fingerprint: String,
    /// The reason why the certificate must be replaced. `None` if the certificate is valid.
    pub replace: Option<String>,
    /// Whether the certificate must be replaced only because of its age: it has expired, or expires soon.
    pub is_due: bool,
    /// A problem of the certificate that cannot be fixed now because no issuer is available.
    pub stuck: Option<String>,
}
