//! What was found on a machine, in the terms in which it is compared.

use std::collections::BTreeMap;

use super::reading::Reading;
use crate::resource::{FreeText, Mode, Resource, ResourceId};

/// What was found of the desired resources. What is not in it is not there.
pub type ObservedState = BTreeMap<ResourceId, Observed>;

/// What was found where a resource should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Just what such a resource would describe.
    Resource(Resource),
    File(ObservedFile),
    Unit(ObservedUnit),
    Certificate(ObservedCertificate),
    /// Something of another type (`a directory`).
    Other(String),
}

impl Observed {
    /// Has nothing of the text hidden that the desired one shows.
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
    /// Owning user, or its number where it has no name.
    pub owner: String,
    /// Owning group, or its number where it has no name.
    pub group: String,
}

impl Access {
    /// What all users may read and only root may write.
    pub fn of_roots() -> Access {
        Access { mode: Mode::FILE, owner: "root".into(), group: "root".into() }
    }
}

/// A regular file, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedFile {
    /// Its owner, group and mode.
    pub access: Access,
    /// Lower-case hexadecimal SHA-256 of the content.
    pub sha256: String,
    /// What is known of the content besides.
    pub content: ObservedContent,
    /// SHA-256 of the content for which the file's commands ([`crate::resource::File::on_change`])
    /// last ran to their end.
    pub commands_ran_for: Option<String>,
    /// How the content serves a program that reads it; `None` where no other bytes serve as well.
    pub serves: Option<Serves>,
    /// What [`super::pod_reading`] gave when the static pod of this file was last started.
    pub pod_mounted: Option<Reading>,
    /// Which part of its text is free text; `None` where the agent has not left this text, so that the desired file decides.
    pub free_text: Option<FreeText>,
}

/// How a file's content serves a program that reads it, where other bytes may serve as well. A content that has to be
/// replaced, because its certificate does not serve, has none of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serves {
    /// What all contents have in common that serve as well as this one.
    pub digest: String,
    /// When the certificate in it is due to be renewed, in seconds since 1970.
    pub due: Option<u64>,
}

/// What is known of a file's content besides its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedContent {
    Text(String),
    Bytes,
    /// It was unpacked from this archive, and is unchanged since.
    Member {
        /// SHA-256 of the archive.
        archive: String,
        member: String,
    },
    /// The observer compared it: there are secrets in it, or another text that means the same ([`super::meaning`]).
    Compared {
        /// Whether it is as desired.
        as_desired: bool,
    },
    /// What should be in it cannot be told now, as of a secret that the store denies: what is there counts as desired.
    Unknown {
        /// Why it cannot be told.
        why: String,
        /// Whether the file is known not to be as the agent left it, or is gone and only taken for there.
        differs: bool,
    },
}

/// Whether a unit starts at boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enablement {
    Enabled,
    /// It does not.
    Disabled,
    /// It has no say in it: there is no `[Install]` section, or systemd made the unit itself.
    Static,
}

/// A unit, as systemd knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedUnit {
    /// The text in the place where the agent writes units; `None` where there is none.
    pub text: Option<String>,
    /// Whether it is another text than the one that the agent left: then it is only right if it is as desired to the byte.
    pub edited: bool,
    /// The file from which systemd has it, or where it would be written.
    pub path: String,
    /// Where its file belongs: another place if an earlier version of the agent has left it here.
    pub belongs: String,
    /// Owner, group and mode of the file that has the text.
    pub access: Option<Access>,
    /// Whether it starts at boot.
    pub enablement: Enablement,
    /// Whether it runs, or has done what it is for.
    pub running: bool,
    /// Whether a process of it is at starting it, and has not come to its end.
    pub starting: bool,
    /// What [`super::unit_reading`] gave when the agent last started it.
    pub stamp: Option<Reading>,
    /// What an operator has put in its place.
    pub overridden: Option<Override>,
    /// Which part of the text is free text, as of a file.
    pub free_text: Option<FreeText>,
}

/// What an operator has put in the place of a unit, by which systemd goes (systemd.unit(5)), and the path at which it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Override {
    /// A mask: the unit is started by no means.
    Masked(String),
    Unit(String),
}

impl Override {
    /// Where it is.
    pub fn path(&self) -> &str {
        match self {
            Override::Masked(path) | Override::Unit(path) => path,
        }
    }
}

/// A certificate that files of the machine hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedCertificate {
    /// SHA-256 of the certificate.
    pub fingerprint: String,
    /// Why it cannot be kept; `None` while it is good.
    pub replace: Option<String>,
    /// Whether that is its age alone: it has expired, or will before long.
    pub is_due: bool,
    /// What is wrong with it and cannot be put right now, because nothing issues another.
    pub stuck: Option<String>,
}
