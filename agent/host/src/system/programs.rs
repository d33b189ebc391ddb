//! Runs programs that inspect the machine and change nothing.

use std::time::Duration;

use kops_agent_spec::failure::{Failure, Kind};

use super::commands::prepare;
use super::deadline::ask_prepared;

/// The search path if the caller's `PATH` has no absolute folder.
const FOLDERS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub is_success: bool,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a program to its end. Only the absolute folders of the caller's `PATH` are passed on; the rest of the
/// environment is not. If the program has not ended after `within`, it is killed with its children. Fails if the
/// program is not installed.
pub fn ask(command: &[&str], within: Duration) -> Result<Answer, Failure> {
    let program = command.first().copied().unwrap_or_default();
    let mut prepared = prepare(command)?;
    prepared.env_clear().env("LC_ALL", "C").env("PATH", folders(&std::env::var("PATH").unwrap_or_default()));
    let outcome = ask_prepared(command, prepared, b"", within)?;
    let outcome =
        outcome.ok_or_else(|| Failure::new(Kind::Command, format!("{program} is not installed")))?;
    Ok(Answer { is_success: outcome.status.success(), stdout: outcome.stdout, stderr: outcome.stderr })
}

/// The absolute folders of the caller's `PATH`. A relative folder would depend on the current directory.
fn folders(of_caller: &str) -> String {
    let folders: Vec<&str> = of_caller.split(':').filter(|folder| folder.starts_with('/')).collect();
    if folders.is_empty() { FOLDERS.to_owned() } else { folders.join(":") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_absolute_part_of_path_is_passed_on() {
        let mut names: Vec<String> = ask(&["env"], Duration::from_secs(60))
            .unwrap()
            .stdout
            .lines()
            .filter_map(|line| Some(line.split_once('=')?.0.to_owned()))
            .collect();
        names.sort();
        assert_eq!(names, ["LC_ALL", "PATH"]);
        assert_eq!(folders("/a:.:b:/c:"), "/a:/c");
        assert_eq!(folders("."), FOLDERS);
    }
}
