//! The kops-agent program that tests run.

use std::path::PathBuf;

use anyhow::Context as _;

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

/// The processor time that a process has used, in seconds.
pub fn processor_time(process: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name before `) ` may contain spaces.
    let (_, fields) = stat.rsplit_once(") ").context("the kernel's form of this file is unknown")?;
    // utime and stime of proc(5), in ticks of a hundredth of a second.
    let ticks: u32 = fields.split(' ').skip(11).take(2).map(str::parse::<u32>).sum::<Result<u32, _>>()?;
    Ok(f64::from(ticks) / 100.0)
}
