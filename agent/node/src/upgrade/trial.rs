//! Tries another version of the program before it replaces the present one. It must print its version, and plan nothing on this node.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use kops_agent_process::exit;
use kops_agent_process::program::PATH_TO_BE;
use kops_agent_spec::terminal::one_line;
use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

/// How long the program may take to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the program may take to plan. It reads the state store, and asks the cloud.
const PLAN_TIMEOUT: Duration = Duration::from_secs(300);
/// How many changes a problem names.
const NAMED: usize = 5;
/// Maximum length of quoted output, in characters.
const LONGEST_QUOTE: usize = 300;

/// A program to try.
pub(super) struct Trial<'a> {
    pub(super) program: &'a str,
    /// The path that the program will have.
    pub(super) path_to_be: &'a str,
    pub(super) conf: &'a Path,
    pub(super) root: &'a Path,
}

impl Trial<'_> {
    /// # Errors
    /// The program does not start, or prints another version.
    pub(super) async fn prints_version(&self, version: &str) -> Result<(), String> {
        let output = self.run(Command::new(self.program).arg("--version"), VERSION_TIMEOUT).await?;
        if !output.status.success() {
            return Err(format!("the new program does not start: {}", ended(&output)));
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        match printed.split_whitespace().nth(1) == Some(version) {
            true => Ok(()),
            false => Err(format!(
                "the new program is another version: `--version` prints {:?}, and the program file has {version:?}",
                one_line(printed.trim(), LONGEST_QUOTE)
            )),
        }
    }

    /// # Errors
    /// The program plans changes of this node, or cannot plan.
    pub(super) async fn plans_nothing(&self) -> Result<(), String> {
        let mut plan = Command::new(self.program);
        plan.arg("plan").arg("--conf").arg(self.conf).arg("--root").arg(self.root);
        let output = self.run(plan.args(["--exit-code", "--output", "json"]), PLAN_TIMEOUT).await?;
        match output.status.code() {
            Some(code) if code == i32::from(exit::CONVERGED) => Ok(()),
            Some(code) if code == i32::from(exit::DIFFERENT) => Err(format!(
                "the new program would change this node ({}); run `kops-agent plan` on the node: if the present program plans the same, \
                 `kops-agent converge` repairs the node",
                changes(&output.stdout)
            )),
            _ => Err(format!("`plan` of the new program fails: {}", ended(&output))),
        }
    }

    async fn run(&self, command: &mut Command, within: Duration) -> Result<Output, String> {
        command.env(PATH_TO_BE, self.path_to_be).stdin(Stdio::null()).kill_on_drop(true);
        // The trial is not this service: it reports nothing to systemd.
        for variable in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
            command.env_remove(variable);
        }
        match timeout(within, command.output()).await {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(error)) => Err(format!("the new program does not start: {error}")),
            Err(_) => {
                Err(format!("the new program has not ended within {} s, and was killed", within.as_secs()))
            }
        }
    }
}

/// How a program ended, with the end of what it printed on standard error.
fn ended(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    match last {
        "" => output.status.to_string(),
        last => format!("{}: {}", output.status, one_line(last, LONGEST_QUOTE)),
    }
}

/// The first changes of a plan in JSON. Another version may write another form.
fn changes(plan: &[u8]) -> String {
    let plan: Value = serde_json::from_slice(plan).unwrap_or_default();
    let steps: Vec<&str> =
        plan["steps"].as_array().into_iter().flatten().filter_map(|step| step["resource"].as_str()).collect();
    if steps.is_empty() {
        return "its plan names no resource".to_owned();
    }
    let mut named = steps.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    if steps.len() > NAMED {
        named += &format!(", and {} more", steps.len() - NAMED);
    }
    one_line(&named, LONGEST_QUOTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_the_first_changes() {
        let step = |name: &str| format!(r#"{{"resource": "file /{name}", "action": "update"}}"#);
        let plan = |names: &[&str]| {
            let steps: Vec<String> = names.iter().map(|name| step(name)).collect();
            changes(format!(r#"{{"summary": {{}}, "steps": [{}]}}"#, steps.join(",")).as_bytes())
        };
        assert_eq!(plan(&["a", "b"]), "file /a, file /b");
        assert_eq!(
            plan(&["a", "b", "c", "d", "e", "f", "g"]),
            "file /a, file /b, file /c, file /d, file /e, and 2 more"
        );
        assert_eq!([plan(&[]), changes(b"no JSON")], ["its plan names no resource"; 2].map(str::to_owned));
    }
}
