//! Which program this is.

use serde::Serialize;

pub const NUMBER: &str = env!("CARGO_PKG_VERSION");
/// The commit that it was built of.
pub const COMMIT: &str = env!("KOPS_AGENT_COMMIT");
/// Both, as `--version` prints them. `packaging/release` looks for this text in a program.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("KOPS_AGENT_COMMIT"), ")");

/// The version as JSON has it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Version {
    pub version: &'static str,
    /// The commit that it was built of.
    pub commit: &'static str,
}

/// The version of this program.
pub const fn of_this_program() -> Version {
    Version { version: NUMBER, commit: COMMIT }
}
