//! What can go wrong while observing a machine or applying a plan to it.

use std::io;

use kops_agent_plan::diff::{CONTAINER_RUNTIME, KUBELET};
use kops_agent_plan::resource::{Kind, ResourceId};

use kops_agent_pki::CertificateError;

use crate::assets::DownloadError;
use crate::rolled_back::RolledBack;

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
    /// A link is on the way to what is to be written, and its owner could have it lead anywhere.
    #[error(
        "nothing is written through {path}, a link to {target} that another user than root can change: put a folder in \
         its place and run again (`chown -h root` where the folder that it is in is root's)"
    )]
    ForeignLink {
        /// Where the link is.
        path: String,
        /// Where it leads now.
        target: String,
    },
    /// A program could not be run, or failed.
    #[error("`{command}` {outcome}")]
    Command {
        command: String,
        /// How it ended, and what it said.
        outcome: String,
    },
    /// systemd does not do what it is asked, or what it started has failed.
    #[error("cannot {doing} {unit}: {reason}")]
    Unit {
        /// What was asked (`restart`).
        doing: &'static str,
        unit: String,
        /// What is wrong, and where there is more to see.
        reason: String,
    },
    /// Units have failed, and everything else is done.
    #[error("{}", every(.0))]
    Units(Vec<FailedUnit>),
    /// Units have failed, or something else has that keeps no other part of the node from being as it should, and
    /// everything else is done.
    #[error("everything else is as it should be: {}", reasons(.0.iter().map(|failed| failed.why.as_str())))]
    Resources(Vec<FailedResource>),
    /// A certificate could not be issued.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Something could not be downloaded.
    #[error(transparent)]
    Download(#[from] DownloadError),
    /// A secret that a file needs is not in the state store.
    #[error("{file} needs {secret}, which is not in the state store, or may not be read by this node")]
    MissingSecret {
        file: ResourceId,
        /// What it needs (`the secret dockerconfig`).
        secret: String,
    },
    /// What goes into a file is in variables that this run was not given.
    #[error("{file} cannot be made: {why}")]
    UnknownEnvironment {
        file: ResourceId,
        /// What is not known, and what to do about it.
        why: String,
    },
    /// Another run holds the lock.
    #[error("another kops-agent is at work on {root} (process {pid}); wait until it has finished")]
    Locked {
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
    /// Another process listens where a component is to be asked, and nothing it answers says how the component is.
    #[error(
        "{resource} cannot be asked how it is: {listener}; nothing was taken back because of it: end that process and run \
         again"
    )]
    Unasked { resource: ResourceId, listener: String },
    /// A change was taken back.
    #[error("{0}")]
    RolledBack(Box<RolledBack>),
    /// A change that was taken back is asked for again.
    #[error(
        "this configuration was tried at {} and rolled back, and is not tried again: {}; change it, or give --retry-failed",
        .0.at, .0.problem
    )]
    FailedBefore(Box<RolledBack>),
    /// An archive has other files than was assumed before it was downloaded. Nothing was changed.
    #[error(
        "the archive of SHA-256 {archive} has other files than those of its release, which is known only now; run again"
    )]
    OtherFiles {
        /// Its SHA-256.
        archive: String,
    },
    /// What is asked for makes no sense.
    #[error("{id}: {reason}")]
    Invalid {
        id: ResourceId,
        /// What is wrong, and what to do.
        reason: String,
    },
}

/// A unit that failed in a run which went on without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedUnit {
    pub unit: String,
    /// What is wrong, and where there is more to see.
    pub why: String,
}

/// What failed in a run which went on without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedResource {
    /// The image, volume, file or unit.
    pub resource: ResourceId,
    /// What is wrong, and where there is more to see.
    pub why: String,
}

fn every(failed: &[FailedUnit]) -> String {
    let units = if failed.len() == 1 { "this unit" } else { "these units" };
    let reasons = reasons(failed.iter().map(|failed| failed.why.as_str()));
    format!("everything but {units} is as it should be: {reasons}")
}

/// Each reason once: that of a runtime that does not answer is every image's.
fn reasons<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    for reason in all {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons.join("; ")
}

fn is_a_pods_need(unit: &str) -> bool {
    [CONTAINER_RUNTIME, KUBELET].contains(&unit)
}

/// The outcome of anything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Whether the configuration has to be changed before trying again can help.
    pub fn is_configuration(&self) -> bool {
        match self {
            Error::Certificate(error) => error.is_configuration(),
            Error::MissingSecret { .. } | Error::Invalid { .. } => true,
            _ => false,
        }
    }

    /// The error for what failed in a run that went on without it, if anything did.
    pub(crate) fn of_failed(failed: Vec<FailedResource>) -> Option<Error> {
        if failed.is_empty() {
            return None;
        }
        if failed.iter().any(|failed| failed.resource.kind != Kind::Unit) {
            return Some(Error::Resources(failed));
        }
        let unit = |FailedResource { resource, why }| FailedUnit { unit: resource.name, why };
        Some(Error::Units(failed.into_iter().map(unit).collect()))
    }

    /// Whether the machine is a node all the same: everything is done, and only that failed without which kubelet runs.
    pub fn leaves_a_working_node(&self) -> bool {
        match self {
            Error::Units(failed) => !failed.iter().any(|failed| is_a_pods_need(&failed.unit)),
            Error::Resources(failed) => !failed
                .iter()
                .any(|failed| failed.resource.kind == Kind::Unit && is_a_pods_need(&failed.resource.name)),
            _ => false,
        }
    }

    /// Whether the same process should try again though the machine is a node: pods may need an image that is missing,
    /// and the registry or the mirror may have it in a minute.
    pub fn misses_images(&self) -> bool {
        matches!(self, Error::Resources(failed) if failed.iter().any(|failed| failed.resource.kind == Kind::Image))
    }

    /// Whether a program of the machine refuses, or systemd does, or a link of another user's is in the way: that is about
    /// a component or a file, and not about the disk or the bus, of which everything else would fail too.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Error::Command { .. } | Error::Unit { .. } | Error::ForeignLink { .. })
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
