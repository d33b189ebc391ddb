//! systemd's properties of the units that make a node. The bundle has the names of environment variables, but not their
//! values.

use std::time::Duration;

use kops_agent_host::system::programs;
use kops_agent_plan::doctor::{Seen, Unseen};

use super::part::Part;
use super::secret_sources::{SecretFact, Told};
use crate::doctor::deadline::run_in_thread;
use crate::options::NodeOptions;

pub const OF_AGENT: [&str; 11] = [
    "kops-agent.service",
    "kops-agent-verify.service",
    "kops-agent-verify.timer",
    "kops-agent-repair.service",
    "kops-agent-metrics.service",
    "kops-agent-metrics.timer",
    "kops-agent-controller.service",
    "kops-agent-addons.service",
    "kops-agent-fleet-tell.service",
    "kops-agent-uncordon.service",
    // The Ignition form of packaging/cloud-init/user-data installs this unit.
    "kops-agent-boot.service",
];
/// The unit of upstream's boot script. It runs the agent if the agent has replaced nodeup.
pub const OF_BOOT_SCRIPT: &str = "kops-configuration.service";
/// The unit of cloud-init that runs the boot script of `packaging/cloud-init`, and all scripts of the operator.
pub const CLOUD_FINAL: &str = "cloud-final.service";
pub const KUBELET: &str = "kubelet.service";
pub const CONTAINERD: &str = "containerd.service";
const PROPERTIES: &str = "--property=Id,LoadState,ActiveState,SubState,Result,UnitFileState,FragmentPath,DropInPaths,\
                          NeedDaemonReload,NRestarts,ExecMainCode,ExecMainStatus,ExecMainStartTimestamp,ActiveEnterTimestamp,\
                          InactiveEnterTimestamp,NextElapseUSecRealtime,LastTriggerUSec,MemoryCurrent,Environment,EnvironmentFiles";
const ENVIRONMENT: &str = "Environment=";
const ENVIRONMENT_FILES: &str = "EnvironmentFiles=";
const WITHIN: Duration = Duration::from_secs(20);

/// The properties of all units, and the variables in their environments.
pub async fn parts(look: &NodeOptions) -> Told {
    let of_root = (!look.is_this_machine()).then(|| format!("--root={}", look.source.node_root.display()));
    let shown = run_in_thread(2 * WITHIN, move || show(of_root.as_deref())).await.and_then(|shown| shown);
    match shown {
        Ok(shown) => {
            let (shown, known) = without_values(&shown);
            (vec![Part::text("units.txt", Ok(shown))], known)
        }
        // Any drop-in may contain secrets, and only systemd knows all drop-ins. So without systemd's answer, the secrets are not fully
        // known.
        Err(why) => (vec![Part::text("units.txt", Err(why.clone()))], vec![SecretFact::Untold(why.into())]),
    }
}

fn show(of_root: Option<&str>) -> Seen<String> {
    let mut command = vec!["systemctl", "show", PROPERTIES];
    command.extend(of_root);
    command.push("--");
    command.extend(OF_AGENT);
    command.extend([OF_BOOT_SCRIPT, CLOUD_FINAL, KUBELET, CONTAINERD]);
    let answer = programs::ask(&command, WITHIN).map_err(Unseen::new)?;
    match answer.is_success {
        true => Ok(answer.stdout),
        false => Err(Unseen::new(format_args!("systemctl: {}", answer.stderr.trim()))),
    }
}

/// systemctl's output, with each environment replaced by the names of its variables. Also returns these variables.
fn without_values(shown: &str) -> (String, Vec<SecretFact>) {
    let mut known = Vec::new();
    let mut lines = String::new();
    for line in shown.lines() {
        // After the path of a file, systemctl writes whether the file may be missing: `/etc/environment (ignore_errors=yes)`.
        if let Some(files) = line.strip_prefix(ENVIRONMENT_FILES) {
            let file = files.rsplit_once(" (").map_or(files, |(file, _)| file);
            known.extend((!file.is_empty()).then(|| variables_of(file)));
        }
        match line.strip_prefix(ENVIRONMENT) {
            None => lines.push_str(line),
            Some(environment) => {
                let names: Vec<String> = variables(environment)
                    .into_iter()
                    .map(|(name, value)| {
                        known.push(SecretFact::Variable(name.clone(), value));
                        name
                    })
                    .collect();
                lines.push_str(&format!("Variables={}", names.join(" ")));
            }
        }
        lines.push('\n');
    }
    (lines, known)
}

/// The fact about an environment file. If `file` is a pattern, only systemd knows which files match the pattern (glob(7)).
fn variables_of(file: &str) -> SecretFact {
    match file.contains(['*', '?', '[']) {
        true => SecretFact::Untold(format!("cannot tell which environment files the pattern {file} matches")),
        false => SecretFact::VariablesOf(file.to_owned()),
    }
}

/// The variables of an environment as systemctl writes it. Variables with spaces are quoted, and have escapes.
fn variables(environment: &str) -> Vec<(String, String)> {
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut chars = environment.chars();
    while let Some(c) = chars.next() {
        let Some(word) = words.last_mut() else { break };
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (_, '\\') => word.extend(chars.next()),
            (None, ' ') => words.push(String::new()),
            _ => word.push(c),
        }
    }
    let split = |word: &String| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    words.iter().filter_map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_environments_only_names_are_shown() {
        let shown = "Id=kubelet.service\nEnvironment=A=1 \"B=x y=z\" TOKEN=a\\\"b\nNRestarts=0\n\nId=x.service\nEnvironment=\n\
                     EnvironmentFiles=/etc/a b (ignore_errors=yes)\nEnvironmentFiles=\nEnvironmentFiles=/etc/*.env (ignore_errors=no)\n";
        let (told, known) = without_values(shown);
        assert_eq!(
            told,
            "Id=kubelet.service\nVariables=A B TOKEN\nNRestarts=0\n\nId=x.service\nVariables=\n\
             EnvironmentFiles=/etc/a b (ignore_errors=yes)\nEnvironmentFiles=\nEnvironmentFiles=/etc/*.env (ignore_errors=no)\n"
        );
        let values: Vec<String> = known
            .into_iter()
            .filter_map(|known| match known {
                SecretFact::Variable(name, value) => Some(format!("{name}: {value}")),
                SecretFact::VariablesOf(path) | SecretFact::Untold(path) => Some(path),
                _ => None,
            })
            .collect();
        assert_eq!(
            values,
            [
                "A: 1",
                "B: x y=z",
                "TOKEN: a\"b",
                "/etc/a b",
                "cannot tell which environment files the pattern /etc/*.env matches"
            ]
        );
    }
}
