//! Runs a program outside the unit of this process, whose sandbox limits what its programs can do (systemd.exec(5),
//! "Sandboxing").

use super::systemctl::{ask_once, conclude, run};
use super::this_run::own_unit;
use super::unit::Act;
use crate::error::{Error, Result};

/// The command that starts a transient unit. `systemd-run` ends when the program ends, because the unit is a oneshot.
const REQUEST: [&str; 8] = [
    "systemd-run",
    "--quiet",
    "--collect",
    "--property=Type=oneshot",
    // While the program is alive, its messages to systemd extend `TimeoutStartSec=`.
    "--property=NotifyAccess=main",
    "--property=TimeoutStartSec=1h",
    "--property=LimitCORE=0",
    "--property=KillMode=mixed",
];

/// Runs a program as a transient unit, with the variables of the agent's own unit, and waits for its end. If systemd
/// stops the agent's unit, it also stops the transient unit. Fails if the program fails.
pub fn run_outside(unit: &str, command: &[&str]) -> Result<()> {
    let own = own_unit().ok_or_else(|| Error::Unit {
        doing: Act::Start.name(),
        unit: unit.to_owned(),
        reason: "no unit runs this process".into(),
    })?;
    let shown = run(&["systemctl", "show", "--property=Environment,EnvironmentFiles", "--", &own])?;
    let options = [
        vec![format!("--unit={unit}"), format!("--property=PartOf={own}")],
        variables(&shown, |name| std::env::var(name).ok()),
    ]
    .concat();
    let options = options.iter().map(String::as_str);
    let request: Vec<&str> =
        REQUEST.into_iter().chain(options).chain(["--"]).chain(command.iter().copied()).collect();
    conclude(Act::Start, unit, ask_once(&request)?)
}

/// The `systemd-run` options for a unit's variables, from the output of `systemctl show`. `value` reads a variable of
/// this process. A variable becomes an option only if its values in the output and in this process are equal. A
/// different value comes from an environment file and may be a secret, and all users can see arguments.
fn variables(shown: &str, value: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut options = Vec::new();
    for line in shown.lines() {
        if let Some(variables) = line.strip_prefix("Environment=") {
            let is_set = |variable: &&str| {
                variable.split_once('=').is_some_and(|(name, shown)| value(name).as_deref() == Some(shown))
            };
            options.extend(
                variables.split_whitespace().filter(is_set).map(|variable| format!("--setenv={variable}")),
            );
        } else if let Some(file) = line.strip_prefix("EnvironmentFiles=") {
            let (path, is_optional) = match file.rsplit_once(" (ignore_errors=") {
                Some((path, flag)) => (path, flag.starts_with("yes")),
                None => (file, true),
            };
            let optional = if is_optional { "-" } else { "" };
            options.push(format!("--property=EnvironmentFile={optional}{path}"));
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_has_the_variables_of_this_processs_unit() {
        let shown = "Environment=ARGUMENTS=--repair HTTPS_PROXY=http://proxy KEY=overridden 'QUOTED=a\n\
                     EnvironmentFiles=/etc/environment (ignore_errors=yes)\nEnvironmentFiles=/etc/own (ignore_errors=no)\n";
        let value = |name: &str| match name {
            "ARGUMENTS" => Some("--repair".into()),
            "HTTPS_PROXY" => Some("http://proxy".into()),
            "KEY" => Some("a secret".into()),
            _ => None,
        };
        assert_eq!(
            variables(shown, value),
            [
                "--setenv=ARGUMENTS=--repair",
                "--setenv=HTTPS_PROXY=http://proxy",
                "--property=EnvironmentFile=-/etc/environment",
                "--property=EnvironmentFile=/etc/own",
            ]
        );
        assert_eq!(variables("Environment=\n", value), [""; 0]);
    }
}
