//! The program that tests drive from outside.

use std::path::PathBuf;

/// `KOPS_AGENT` if it is set, as in CI, where that is the binary that ships; else `built`, which cargo built for the test
/// in its own profile.
///
/// # Panics
/// If `KOPS_AGENT` is no absolute path: a test's working folder is its package's.
pub fn kops_agent(built: impl Into<PathBuf>) -> PathBuf {
    let Some(program) = std::env::var_os("KOPS_AGENT") else { return built.into() };
    let program = PathBuf::from(program);
    assert!(program.is_absolute(), "KOPS_AGENT must be an absolute path, and is {}", program.display());
    program
}
