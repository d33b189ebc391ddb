//! The codes that the process ends with.

/// It worked; nothing is left to do.
pub const CONVERGED: u8 = 0;
/// It failed; trying again may help.
pub const FAILED: u8 = 1;
/// The configuration is wrong; trying again cannot help.
pub const CONFIGURATION: u8 = 3;
/// `plan --exit-code` or `verify` found a difference.
pub const DIFFERENT: u8 = 4;

/// A configuration that cannot be right, found outside of deciding.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongConfiguration(pub String);
