//! The kops-agent program that tests run.

use std::path::PathBuf;

use anyhow::Context as _;

/// Returns the program in the variable `KOPS_AGENT`, which is the release binary in CI. If the variable is not set, returns
/// `built`, which cargo has built in the test's profile.
///
/// # Panics
/// If `KOPS_AGENT` is not an absolute path. A relative path would be relative to the package's folder, in which a test runs.
pub fn kops_agent(built: impl Into<PathBuf>) -> PathBuf {
    let Some(program) = std::env::var_os("KOPS_AGENT") else { return built.into() };
    let program = PathBuf::from(program);
    assert!(program.is_absolute(), "KOPS_AGENT must be an absolute path, and is {}", program.display());
    program
}

/// The processor time that a process has used, in seconds.
pub fn processor_time(process: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The program's name before `) ` may contain spaces.
    let (_, fields) = stat.rsplit_once(") ").context("the kernel's form of this file is unknown")?;
    // utime and stime of proc(5), in hundredths of a second.
    let ticks: u32 = fields.split(' ').skip(11).take(2).map(str::parse::<u32>).sum::<Result<u32, _>>()?;
    Ok(f64::from(ticks) / 100.0)
}
