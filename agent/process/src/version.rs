//! The version of this program.

use serde::Serialize;

pub const NUMBER: &str = env!("CARGO_PKG_VERSION");
/// The commit that this program was built from.
pub const COMMIT: &str = env!("KOPS_AGENT_COMMIT");
/// Version number and commit, as `--version` prints them. `packaging/release` searches the program for this text.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("KOPS_AGENT_COMMIT"), ")");

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Version {
    pub version: &'static str,
    pub commit: &'static str,
}

pub const fn of_this_program() -> Version {
    Version { version: NUMBER, commit: COMMIT }
}
