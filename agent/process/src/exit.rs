//! The exit codes of the process. Every command uses the same codes.

/// Success: nothing is left to do.
pub const CONVERGED: u8 = 0;
/// Failure: a retry may help.
pub const FAILED: u8 = 1;
/// Wrong usage. clap uses this code, too.
pub const USAGE: u8 = 2;
/// The configuration is wrong: a retry cannot help.
pub const CONFIGURATION: u8 = 3;
/// A check found drift or a problem.
pub const DIFFERENT: u8 = 4;

/// The meaning of each code, for `--help` and the pages.
pub const MEANINGS: [(u8, &str); 5] = [
    (CONVERGED, "success: nothing is left to do, and no check found drift or a problem"),
    (FAILED, "failed: another run may succeed"),
    (USAGE, "wrong usage"),
    (CONFIGURATION, "the configuration is wrong: another run fails as well"),
    (
        DIFFERENT,
        "a check found drift or a problem: plan and addons diff with --exit-code, verify, status, doctor, config assets --check, \
         controller takeover, addons status or fleet status",
    ),
];
