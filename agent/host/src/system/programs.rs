//! Programs that are asked how the machine is, and change nothing.

use std::time::Duration;

use super::deadline::ask_within;

/// What a program said, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether it succeeded.
    pub is_success: bool,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

/// Runs a program to its end, and kills it with all that it has started where it has not ended `within` that time.
///
/// # Errors
/// It is not installed, cannot be started, or has not ended in time: why, in words.
pub fn ask(command: &[&str], within: Duration) -> Result<Answer, String> {
    let program = command.first().copied().unwrap_or_default();
    let outcome = ask_within(command, b"", within).map_err(|error| error.to_string())?;
    let outcome = outcome.ok_or_else(|| format!("{program} is not installed"))?;
    Ok(Answer { is_success: outcome.status.success(), stdout: outcome.stdout, stderr: outcome.stderr })
}
