//! The kops-agent program that tests run.

use std::path::PathBuf;

/// Returns `KOPS_AGENT` if it is set. In CI, it is set to the binary that ships. Otherwise returns `built`, which cargo has built
/// for the test in the test's profile.
///
/// # Panics
/// If `KOPS_AGENT` is not an absolute path. A relative path would start at the package's folder, where a test runs.
pub fn kops_agent(built: impl Into<PathBuf>) -> PathBuf {
    let Some(program) = std::env::var_os("KOPS_AGENT") else { return built.into() };
    let program = PathBuf::from(program);
    assert!(program.is_absolute(), "KOPS_AGENT must be an absolute path, and is {}", program.display());
    program
}
