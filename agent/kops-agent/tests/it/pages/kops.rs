//! The commands of kOps' own program on the pages. No test has that program, so this file lists its commands and flags as of kOps
//! 1.37-alpha (commit 268927e, `cmd/kops`).

use super::commands::commands;
use super::page::Page;

/// Each kOps command that a page may show, with its flags.
const COMMANDS: [(&str, &[&str]); 26] = [
    ("create", &["-f"]),
    ("create instancegroup", &["--role", "--subnet", "--zone", "--dry-run", "--output", "-o", "--edit"]),
    ("create keypair", &["--cert", "--key", "--primary"]),
    ("delete instancegroup", &["--yes", "-y"]),
    ("distrust keypair", &[]),
    ("edit cluster", &["--set", "--unset"]),
    ("edit ig", &["--set", "--unset"]),
    ("edit instancegroup", &["--set", "--unset"]),
    ("export kubeconfig", &["--kubeconfig", "--all", "--admin", "--user", "--internal"]),
    ("get assets", &["--copy", "--output", "-o"]),
    ("get cluster", &["--full", "--output", "-o"]),
    ("get clusters", &["--full", "--output", "-o"]),
    ("get ig", &["--output", "-o"]),
    ("get instancegroups", &["--output", "-o"]),
    ("get keypairs", &["--distrusted", "--output", "-o"]),
    ("promote keypair", &[]),
    ("replace", &["-f", "--filename", "--force"]),
    ("rolling-update", &[]),
    (
        "rolling-update cluster",
        &["--yes", "-y", "--instance-group", "--instance-group-roles", "--cloudonly", "--force"],
    ),
    (
        "toolbox enroll",
        &[
            "--cluster",
            "--instance-group",
            "--pod-cidr",
            "--host",
            "--ssh-user",
            "--ssh-port",
            "--build-host",
        ],
    ),
    ("toolbox template", &["--template", "--values", "--output"]),
    ("trust keypair", &[]),
    (
        "update cluster",
        &["--yes", "-y", "--instance-group", "--instance-group-roles", "--admin", "--target", "--out"],
    ),
    ("upgrade", &[]),
    ("validate cluster", &["--output", "-o", "--wait"]),
    ("version", &["--short"]),
];

const GLOBAL: [&str; 4] = ["--name", "--state", "--config", "-v"];

/// Finds the kOps commands and flags on a page that kOps does not have.
pub fn unknown(page: &Page) -> Vec<String> {
    let is_kops = |command: &String| command.starts_with("kops ");
    commands(page).into_iter().filter(is_kops).filter_map(|command| wrong(page, &command)).collect()
}

fn wrong(page: &Page, command: &str) -> Option<String> {
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let found = |count: usize| {
        let name = words.get(..count)?.join(" ");
        COMMANDS.iter().find(|(known, _)| *known == name)
    };
    let Some((_, flags)) = found(2).or_else(|| found(1)) else {
        return Some(format!("{}: `{command}`: kops has no such command", page.name));
    };
    let flag = |word: &&str| word.starts_with('-');
    let lost = words.iter().copied().filter(flag).map(|word| word.split('=').next().unwrap_or_default());
    let lost = lost.into_iter().find(|flag| !flags.contains(flag) && !GLOBAL.contains(flag))?;
    Some(format!("{}: `{command}`: kops has no {lost} there", page.name))
}
