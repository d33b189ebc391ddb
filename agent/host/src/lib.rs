//! Observes this machine and applies a plan to it.
//!
//! [`Host`] is the only handle with effects. What it does to files it does below a root directory;
//! whatever else there is to ask of a machine is behind the traits of [`system`].

mod applied;
mod apply;
mod assets;
mod certs;
mod contents;
mod digests;
mod earlier_node;
mod error;
pub mod facts;
mod first_sight;
pub mod health;
mod host;
mod hosts_file;
mod labels;
mod lock;
mod observe;
mod package_files;
mod prepare;
mod recognition;
mod record;
mod registration;
mod remembered;
mod reset;
mod rollback;
mod root;
mod secrets;
mod selinux;
mod staged;
mod stamps;
mod status;
pub mod system;
mod unit_overrides;
mod unit_path;
mod volumes;

pub use applied::{Applied, Sources, Unfinished};
pub use apply::{Report, Scope, Waits};
pub use assets::{DownloadError, Downloads, MirrorFailure, Patience, Progress, Silent};
pub use contents::secret_text;
pub use error::{Error, FailedResource, FailedUnit, Result};
pub use host::Host;
pub use lock::Lock;
pub use record::{Decided, Depth, Failure, Record, Superseded};
pub use reset::{Reset, Resetting};
pub use rollback::{Renewing, RolledBack};
pub use secrets::{Material, Secrets};
pub use status::{CertificateStatus, Drift, Status, UnitStatus};
