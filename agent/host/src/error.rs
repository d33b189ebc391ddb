//! Errors of observing a machine and of applying a plan to it.

use std::io;

use kops_agent_plan::diff::{CONTAINER_RUNTIME, KUBELET};
use kops_agent_plan::resource::{Kind, ResourceId};

use kops_agent_pki::CertificateError;
use kops_agent_spec::failure::{Failing, Failure, Kind as Failed};

use crate::assets::DownloadError;
use crate::rolled_back::RolledBack;

/// Why an observation or a run stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation on a file, directory or link failed.
    #[error("cannot {doing} {path}: {reason}")]
    Path {
        /// The operation, for example `write`.
        doing: &'static str,
        path: String,
        /// The cause, and what to do.
        reason: String,
    },
    /// A symbolic link on the path of a file to write belongs to another user, who could change its target.
    #[error(
        "{path} is a link to {target} that a user other than root can change, so kops-agent writes nothing \
         through the link. Put a folder in the place of the link and run again. If root owns the folder \
         above the link, `chown -h root` on the link is enough"
    )]
    ForeignLink {
        path: String,
        /// The link's current target.
        target: String,
    },
    /// A program failed or did not start.
    #[error("`{command}` {outcome}")]
    Command {
        command: String,
        /// The exit status and the output of the program.
        outcome: String,
    },
    /// systemd rejected a request, or the unit that it started failed.
    #[error("cannot {doing} {unit}: {reason}")]
    Unit {
        /// The request, for example `restart`.
        doing: &'static str,
        unit: String,
        /// The cause, and where to find details.
        reason: String,
    },
    /// Units failed. The run completed everything else.
    #[error("{}", every(.0))]
    Units(Vec<FailedUnit>),
    /// Resources failed, and not all of them are units. For example, an image failed. The run completed everything else.
    #[error("some resources failed, but everything else is as it should be: {}", reasons(.0.iter().map(|failed| failed.why.as_str())))]
    Resources(Vec<FailedResource>),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Download(#[from] DownloadError),
    #[error("{file} needs {secret}, which is not in the state store, or which this node may not read")]
    MissingSecret {
        file: ResourceId,
        /// The secret, for example `the secret dockerconfig`.
        secret: String,
    },
    /// A file's content comes from environment variables that are unknown to this run.
    #[error("cannot create {file}: {why}")]
    UnknownEnvironment {
        file: ResourceId,
        /// The missing variables, and what to do.
        why: String,
    },
    #[error("another kops-agent is running on {root} (process {pid}); wait until it has finished")]
    Locked {
        root: String,
        /// The process ID, or `unknown`.
        pid: String,
    },
    #[error("{resource} did not become healthy: {why}; look at {look_at}")]
    Unhealthy {
        /// The unit, or the manifest of the static pod.
        resource: ResourceId,
        why: String,
        /// Where to find details.
        look_at: String,
    },
    /// Another process listens at the address of a component's health check. So the answer says nothing about the component.
    #[error(
        "cannot check the health of {resource}: {listener}; end that process and run again. This failure \
         causes no rollback"
    )]
    Unasked { resource: ResourceId, listener: String },
    #[error("{0}")]
    RolledBack(Box<RolledBack>),
    /// This run would repeat a change that an earlier run rolled back.
    #[error(
        "this configuration was tried at {} and rolled back: {}. So it is not tried again: change the \
         configuration, or give --retry-failed",
        .0.at, .0.problem
    )]
    FailedBefore(Box<RolledBack>),
    /// A downloaded archive has other files than the plan assumed. The run changed nothing.
    #[error(
        "the archive with SHA-256 {archive} does not have the files of its release. This run changed \
         nothing; run again"
    )]
    OtherFiles {
        /// The SHA-256 of the archive.
        archive: String,
    },
    /// The requested state is not valid.
    #[error("{id}: {reason}")]
    Invalid {
        id: ResourceId,
        /// The cause, and what to do.
        reason: String,
    },
}

/// A unit that failed in a run. The run completed everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedUnit {
    pub unit: String,
    /// The cause, and where to find details.
    pub why: String,
}

/// A resource that failed in a run. The run completed everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedResource {
    /// An image, volume, file or unit.
    pub resource: ResourceId,
    /// The cause, and where to find details.
    pub why: String,
}

fn every(failed: &[FailedUnit]) -> String {
    let units = if failed.len() == 1 { "one unit" } else { "some units" };
    let reasons = reasons(failed.iter().map(|failed| failed.why.as_str()));
    format!("{units} failed, but everything else is as it should be: {reasons}")
}

/// Joins the distinct reasons. Reasons may be equal: if the container runtime does not answer, every image fails for this reason.
fn reasons<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    for reason in all {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons.join("; ")
}

fn is_needed_by_pods(unit: &str) -> bool {
    [CONTAINER_RUNTIME, KUBELET].contains(&unit)
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Failing for Error {
    fn kind(&self) -> Failed {
        match self {
            Error::Path { .. } => Failed::Path,
            Error::ForeignLink { .. } => Failed::ForeignLink,
            Error::Command { .. } => Failed::Command,
            Error::Unit { .. } => Failed::Unit,
            Error::Units(failed) if failed.iter().any(|failed| is_needed_by_pods(&failed.unit)) => {
                Failed::PodUnitsFailed
            }
            Error::Units(_) => Failed::UnitsFailed,
            Error::Resources(failed) => of_resources(failed),
            Error::Certificate(error) => error.kind(),
            Error::Download(error) => error.kind(),
            Error::MissingSecret { .. } => Failed::MissingSecret,
            Error::UnknownEnvironment { .. } => Failed::UnknownEnvironment,
            Error::Locked { .. } => Failed::Locked,
            Error::Unhealthy { .. } => Failed::Unhealthy,
            Error::Unasked { .. } => Failed::HealthUnknown,
            Error::RolledBack(_) => Failed::RolledBack,
            Error::FailedBefore(_) => Failed::FailedBefore,
            Error::OtherFiles { .. } => Failed::OtherFiles,
            Error::Invalid { .. } => Failed::InvalidResource,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(error.kind(), error.to_string())
    }
}

fn of_resources(failed: &[FailedResource]) -> Failed {
    let is_of = |kind: Kind| failed.iter().any(|failed| failed.resource.kind == kind);
    let is_needed = |failed: &FailedResource| {
        failed.resource.kind == Kind::Unit && is_needed_by_pods(&failed.resource.name)
    };
    match () {
        () if failed.iter().any(is_needed) => Failed::PodUnitsFailed,
        () if is_of(Kind::Image) => Failed::ImagesMissing,
        () => Failed::ResourcesFailed,
    }
}

impl Error {
    /// The error for the failed resources of a run; `None` if nothing failed.
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

    /// Whether the error concerns only one component or file: a program failed, systemd rejected a request, a unit failed, or another
    /// user's link is in the way. An error of the disk or of D-Bus, in contrast, affects everything.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Error::Command { .. } | Error::Unit { .. } | Error::ForeignLink { .. })
    }

    /// The error that the operation `doing` on `path` failed.
    pub fn path(doing: &'static str, path: impl Into<String>, error: impl Into<io::Error>) -> Error {
        Error::Path { doing, path: path.into(), reason: explain(&error.into()) }
    }
}

/// Explains an I/O error. If the cause is known, says what to do.
pub(crate) fn explain(error: &io::Error) -> String {
    let said = error.to_string();
    let what = said.split(" (os error").next().unwrap_or(&said);
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("{what}; free some space on that file system and run again")
        }
        io::ErrorKind::PermissionDenied => format!("{what}; run as root, or choose another root directory"),
        io::ErrorKind::ReadOnlyFilesystem => {
            format!("{what}; mount it for writing, or choose another root directory")
        }
        _ => what.to_owned(),
    }
}
