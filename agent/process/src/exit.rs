//! The codes that the process ends with, the same for every verb.

/// It worked; nothing is left to do.
pub const CONVERGED: u8 = 0;
/// It failed; trying again may help.
pub const FAILED: u8 = 1;
/// The call is wrong; clap ends with the same.
pub const USAGE: u8 = 2;
/// The configuration is wrong; trying again cannot help.
pub const CONFIGURATION: u8 = 3;
/// What was looked at is not as it should be.
pub const DIFFERENT: u8 = 4;

/// What each code means, for `--help` and the pages.
pub const MEANINGS: [(u8, &str); 5] = [
    (CONVERGED, "done: nothing is left to do, and nothing was found that is not as it should be"),
    (FAILED, "failed: another run may succeed"),
    (USAGE, "wrong usage"),
    (CONFIGURATION, "the configuration is wrong: another run fails as well"),
    (
        DIFFERENT,
        "something is not as it should be: found by plan and addons diff with --exit-code, verify, status, doctor, controller takeover, \
         addons status or fleet status",
    ),
];

/// A configuration that cannot be right, found outside of deciding.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongConfiguration(pub String);

/// Flags that do not go together, found after they were read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongUsage(pub String);
