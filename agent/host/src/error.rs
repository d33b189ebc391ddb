//! What can go wrong while observing a machine or applying a plan to it.

use std::io;

use kops_agent_plan::diff::{CONTAINER_RUNTIME, KUBELET};
use kops_agent_plan::resource::ResourceId;

use crate::assets::DownloadError;
use crate::certs::CertificateError;
use crate::rollback::RolledBack;

/// Why observing or applying stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, directory or link could not be dealt with.
    #[error("cannot {doing} {path}: {reason}")]
    Path {
        /// What was being done to it (`write`).
        doing: &'static str,
        /// Where it is.
        path: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A program could not be run, or failed.
    #[error("`{command}` {outcome}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended, and what it said.
        outcome: String,
    },
    /// systemd does not do what it is asked, or what it started has failed.
    #[error("cannot {doing} {unit}: {reason}")]
    Unit {
        /// What was asked (`restart`).
        doing: &'static str,
        /// The unit.
        unit: String,
        /// What is wrong, and where there is more to see.
        reason: String,
    },
    /// Units have failed, and everything else is done.
    #[error("{}", every(.0))]
    Units(Vec<FailedUnit>),
    /// A certificate could not be issued.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Something could not be downloaded.
    #[error(transparent)]
    Download(#[from] DownloadError),
    /// A secret that a file needs is not in the state store.
    #[error("{file} needs {secret}, which is not in the state store, or may not be read by this node")]
    MissingSecret {
        /// The file.
        file: ResourceId,
        /// What it needs (`the secret dockerconfig`).
        secret: String,
    },
    /// What goes into a file is in variables that this run was not given.
    #[error("{file} cannot be made: {why}")]
    UnknownEnvironment {
        /// The file.
        file: ResourceId,
        /// What is not known, and what to do about it.
        why: String,
    },
    /// Another run holds the lock.
    #[error("another kops-agent is at work on {root} (process {pid}); wait until it has finished")]
    Locked {
        /// The root.
        root: String,
        /// The process, as far as it is known.
        pid: String,
    },
    /// A component that was restarted is not well.
    #[error("{resource} did not come back: {why}; look at {look_at}")]
    Unwell {
        /// The unit, or the file of the static pod.
        resource: ResourceId,
        /// What is wrong with it.
        why: String,
        /// Where there is more to see.
        look_at: String,
    },
    /// A change was taken back.
    #[error("{0}")]
    RolledBack(Box<RolledBack>),
    /// A change that was taken back is asked for again.
    #[error(
        "this configuration was tried at {} and rolled back, and is not tried again: {}; change it, or give --retry-failed",
        .0.at, .0.problem
    )]
    FailedBefore(Box<RolledBack>),
    /// What is asked for makes no sense.
    #[error("{id}: {reason}")]
    Invalid {
        /// The resource.
        id: ResourceId,
        /// What is wrong, and what to do.
        reason: String,
    },
}

/// A unit that failed in a run which went on without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedUnit {
    /// Its name.
    pub unit: String,
    /// What is wrong, and where there is more to see.
    pub why: String,
}

fn every(failed: &[FailedUnit]) -> String {
    let what: Vec<&str> = failed.iter().map(|failed| failed.why.as_str()).collect();
    let units = if failed.len() == 1 { "this unit" } else { "these units" };
    format!("everything but {units} is as it should be: {}", what.join("; "))
}

/// The outcome of anything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Whether somebody has to change the configuration before trying again can help.
    pub fn is_configuration(&self) -> bool {
        match self {
            Error::Certificate(error) => error.is_configuration(),
            Error::MissingSecret { .. } | Error::Invalid { .. } => true,
            _ => false,
        }
    }

    /// Whether the machine is a node all the same: everything is done, and only units failed on which no pod depends.
    pub fn leaves_a_working_node(&self) -> bool {
        let is_fatal = |failed: &FailedUnit| [CONTAINER_RUNTIME, KUBELET].contains(&failed.unit.as_str());
        matches!(self, Error::Units(failed) if !failed.iter().any(is_fatal))
    }

    /// Whether a program of the machine refuses, or systemd does: that is about a component, and not about the disk or
    /// the bus, of which everything else would fail too.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Error::Command { .. } | Error::Unit { .. })
    }

    /// `doing` something to `path` failed with `error`.
    pub(crate) fn path(doing: &'static str, path: impl Into<String>, error: impl Into<io::Error>) -> Error {
        Error::Path { doing, path: path.into(), reason: explain(&error.into()) }
    }
}

/// What an I/O error means, and what to do about it where that is not plain.
pub(crate) fn explain(error: &io::Error) -> String {
    let said = error.to_string();
    let what = said.split(" (os error").next().unwrap_or(&said);
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("{what}; free some space on that file system and run again")
        }
        io::ErrorKind::PermissionDenied => format!("{what}; run as root, or choose another root"),
        io::ErrorKind::ReadOnlyFilesystem => {
            format!("{what}; mount it for writing, or choose another root")
        }
        _ => what.to_owned(),
    }
}
