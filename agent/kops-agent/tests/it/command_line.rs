//! The command line as people, boot scripts and packagers use it.

// A skipped test prints why it is skipped.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use crate::example;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use crate::example::{Ended, Machine, keysets};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kops_agent_tests::example_keys::TOKENS;
use kops_agent_tests::example_store::{CONTROL_PLANE, NODES};

/// Runs the command in a terminal with `TERM` set to `name`, by `script` of util-linux. If `script` does not work,
/// prints a message and returns `None`.
fn on_terminal(call: &Command, name: &str) -> Option<String> {
    let words = std::iter::once(call.get_program()).chain(call.get_args());
    let words: Vec<String> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &words.join(" "), "/dev/null"]).stdin(Stdio::null());
    script.env("TERM", name).env_remove("NO_COLOR");
    script.envs(call.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ended = match script.output() {
        Ok(ended) => ended,
        Err(error) => {
            eprintln!("skipped: `script` does not run: {error}");
            return None;
        }
    };
    let shown = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{shown}");
    Some(shown)
}

#[test]
fn a_dumb_terminal_gets_plain_text() {
    let machine = Machine::new(NODES);
    let plan = machine.agent("plan");
    let Some(in_color) = on_terminal(&plan, "xterm-256color") else { return };
    assert!(in_color.contains("\u{1b}[") && in_color.contains("kubelet"), "{in_color:?}");
    let plain = on_terminal(&plan, "dumb").unwrap();
    assert!(!plain.contains('\u{1b}') && plain.contains("kubelet"), "{plain:?}");
    let plain = on_terminal(&machine.agent("converge"), "dumb").unwrap();
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
}

const COMMANDS: [&str; 15] = [
    "converge",
    "plan",
    "verify",
    "status",
    "doctor",
    "support-bundle",
    "reset",
    "render",
    "facts",
    "config",
    "fleet",
    "explain",
    "completions",
    "man",
    "version",
];

fn agent(arguments: &[&str]) -> Ended {
    Ended::from_command(command().args(arguments))
}

/// Calls the program with RUST_BACKTRACE, because the environment of a developer or of a unit may have this variable.
fn command() -> Command {
    let mut command = Command::new(example::agent());
    command.env_clear().env("RUST_BACKTRACE", "1");
    command
}

#[test]
fn help_names_every_command_and_exit_code() {
    let help = agent(&["--help"]);
    help.with(0, &[]);
    for command in COMMANDS {
        assert!(
            help.stdout.lines().any(|line| line.trim_start().starts_with(command)),
            "{command}: {help:#?}"
        );
        let of_command = agent(&[command, "--help"]);
        of_command.with(0, &[]);
        assert!(of_command.stdout.contains("Usage:"), "{of_command:#?}");
        let (_, global) = of_command.stdout.split_once("\nGlobal options:\n").unwrap();
        assert_eq!(global.matches("\n  -").count() + usize::from(global.starts_with("  -")), 2, "{global}");
        assert!(global.contains("-v, --v <LEVEL>") && global.contains("-h, --help"), "{global}");
    }
    assert!(help.stdout.contains("Exit codes, the same for every command:"), "{help:#?}");
}

#[test]
fn the_version_names_the_commit() {
    let version = agent(&["--version"]);
    version.with(0, &[]);
    let rest = version.stdout.trim_end().strip_prefix("kops-agent ").unwrap();
    let (number, commit) = rest.strip_suffix(')').and_then(|rest| rest.split_once(" (")).unwrap();
    assert_eq!(number, env!("CARGO_PKG_VERSION"));
    // A test build has `development` instead of a commit, so that a new commit needs no new build.
    let is_commit = commit.len() == 12 && commit.chars().all(|digit| digit.is_ascii_hexdigit());
    assert!(is_commit || commit == "development", "{version:#?}");
    assert_eq!(agent(&["version"]).stdout, version.stdout);
    let json: serde_json::Value = serde_json::from_str(&agent(&["version", "-o", "json"]).stdout).unwrap();
    assert_eq!(json, serde_json::json!({"schemaVersion": 1, "version": number, "commit": commit}));
}

#[test]
fn the_changelog_begins_with_the_version_its_day_and_at_most_40_lines() {
    let changelog = include_str!("../../../../CHANGELOG.md");
    let section = changelog.lines().find_map(|line| line.strip_prefix("## ")).unwrap();
    let (number, day) = section.split_once(" - ").unwrap();
    assert_eq!(number, env!("CARGO_PKG_VERSION"));
    let is_digits = |part: &str| part.chars().all(|digit| digit.is_ascii_digit());
    let is_day = day.split('-').map(str::len).eq([4, 2, 2]) && day.split('-').all(is_digits);
    assert!(is_day || day == "unreleased", "{day}");
    // The first section of the changelog becomes the text of the GitHub release.
    let lines = changelog.lines().skip_while(|line| !line.starts_with("## ")).skip(1);
    let lines = lines.take_while(|line| !line.starts_with("## ")).count();
    assert!(lines <= 40, "the first section of CHANGELOG.md has {lines} lines: at most 40");
}

#[test]
fn man_gets_a_page() {
    let page = agent(&["man"]);
    page.with(0, &[]);
    assert!(page.stdout.contains(".TH kops-agent 1"), "{}", page.stdout);
    assert!(page.stdout.contains("converge"), "{}", page.stdout);
}

#[test]
fn wrong_usage_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    for (arguments, said) in [
        (&[][..], "Usage:"),
        (&["destroy"], "destroy"),
        (&["converge", "--conf", "x", "--wrong"], "--wrong"),
        (&["plan", "--conf", "x", "--config-from", "hearsay"], "hearsay"),
        (&["--conf=x", "--target=terraform"], "terraform"),
        (&["plan", "--store-mirror", "nonsense"], "--store-mirror nonsense"),
        (&["status", "--write", "x", "--root", root], "--output prometheus"),
        (&["status", "--timeline", "--output", "prometheus", "--root", root], "--timeline"),
        (&["config", "check", "--instance-group", "nodes"], "--config-base"),
        (&["fleet", "upgrade", "--program", "x", "--observe", "60"], "--observe needs --canary"),
        (&["reset", "--root", root], "give --yes"),
    ] {
        let ended = agent(arguments);
        ended.with(2, &[said]);
        let code = if said.starts_with("--store-mirror") { "[KA2012]" } else { "[KA1001]" };
        assert!(ended.stderr.trim_end().ends_with(code), "{ended:#?}");
    }
}

#[test]
fn help_and_version_are_no_failure() {
    for arguments in [&["--help"][..], &["plan", "-h"], &["--version"], &["help", "config"]] {
        let ended = agent(arguments);
        ended.with(0, &[]);
        assert!(!ended.stdout.contains("[KA1001]") && ended.stderr.is_empty(), "{ended:#?}");
    }
    let alone = agent(&[]);
    assert!(alone.stderr.ends_with("\n\nerror: a command is missing [KA1001]\n"), "{alone:#?}");
}

/// Each verb reads the boot config from the path where a boot script writes it. An empty `/opt` hides this machine's
/// own files from the test.
#[test]
fn a_machine_has_one_boot_config() {
    const SCRIPT: &str = "mount -t tmpfs none /opt && exec \"$@\"";
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    for verb in [
        &["plan"][..],
        &["verify"],
        &["render"],
        &["explain", "kubelet.service"],
        &["config", "dump"],
        &["config", "check"],
    ] {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--", "sh", "-c", SCRIPT, "sh"]).arg(example::agent()).args(verb);
        Ended::from_command(&mut command)
            .with(1, &["reading the boot config /opt/kops/conf/kube_env.yaml: No such file"]);
    }
}

#[test]
fn an_invalid_boot_config_and_a_missing_one_are_different_errors() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kube_env.yaml");
    let path = file.to_str().unwrap();
    for arguments in
        [&["plan", "--conf", path][..], &["--conf", path, "--dryrun"], &["-conf", path, "-dryrun"]]
    {
        agent(arguments).with(1, &[path, "No such file"]);
    }
    fs::write(&file, "#!/bin/sh\necho hello\n").unwrap();
    agent(&["plan", "--conf", path]).with(3, &["conf/kube_env.yaml"]);
}

#[test]
fn an_error_has_no_backtrace_whatever_the_environment_requests() {
    for (variable, value) in
        [("RUST_BACKTRACE", "1"), ("RUST_BACKTRACE", "full"), ("RUST_LIB_BACKTRACE", "1"), ("X", "")]
    {
        let mut agent = Command::new(example::agent());
        agent.env_clear().env(variable, value).args(["plan", "--conf", "/nonexistent"]);
        let ended = Ended::from_command(&mut agent);
        ended.with(1, &["error: reading the boot config /nonexistent: No such file"]);
        assert!(!ended.stderr.to_lowercase().contains("backtrace"), "{ended:#?}");
    }
}

/// Control-plane mode starts threads. With a limit of one process (`--nproc=1`), it cannot start them, so its runtime
/// panics.
#[test]
fn a_panic_tells_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("kops-agent");
    example::copy_agent(&program);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut agent = Command::new("prlimit");
    agent.env_clear().envs(std::env::var("PATH").map(|path| ("PATH", path))).env("RUST_BACKTRACE", "1");
    agent.arg("--nproc=1");
    // root has no limit of processes, and another existing user may already have processes. So a new user ID is used.
    if nix::unistd::geteuid().is_root() {
        let user = 20_000 + std::process::id() % 40_000;
        agent.args(["setpriv", &format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
    }
    let output = agent.arg(program).arg("controller").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said}");
    // The released program has no names of functions, so the backtrace has only addresses.
    let functions = ["backtrace (the program is loaded at 0x", "0:     0x"];
    let message = ["error: kops-agent ", " panicked at ", ".rs:", "in the thread main", "please report it"];
    for part in message.into_iter().chain(functions) {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
}

/// nodeup's own flags give the same result as the agent's flags. nodeup has no `--facts`, so both calls observe this
/// machine. Both calls fail, because `AWS_EC2_METADATA_DISABLED` is set.
#[test]
fn nodeups_flags_lead_the_same_way() {
    let machine = Machine::new(NODES);
    let conf = machine.cluster.store.kube_env(NODES);
    let conf = conf.to_str().unwrap();
    let ended = |arguments: &[&str]| {
        let mut agent = command();
        agent.envs(machine.cluster.environment()).env("AWS_EC2_METADATA_DISABLED", "true");
        Ended::from_command(agent.args(arguments))
    };
    let ours = ended(&["plan", "--conf", conf]);
    ours.with(1, &["AWS_EC2_METADATA_DISABLED"]);
    for arguments in [
        &[&*format!("--conf={conf}"), "--dryrun"][..],
        &[&format!("--conf={conf}"), "--target=dryrun", "--v=1"],
        &[&format!("-conf={conf}"), "-target", "dryrun", "-retries=0", "-cache=/var/cache/nodeup"],
        &["--v=1", "--conf", conf, "--dryrun=true"],
    ] {
        let nodeups = ended(arguments);
        assert_eq!((nodeups.code, &nodeups.stdout, &nodeups.stderr), (ours.code, &ours.stdout, &ours.stderr));
    }
}

#[test]
fn more_verbosity_says_more() {
    let machine = Machine::new(NODES);
    let said = |level: &str| {
        let ended = machine.run("plan", &["-v", level]);
        ended.with(0, &[]);
        ended.stderr.lines().count()
    };
    let (quiet, everything) = (said("0"), said("8"));
    assert_eq!(quiet, 0, "a plan without trouble has nothing to warn of");
    assert!(everything > 0);
}

/// Every secret in the store, plain and in base64. A key is represented by a line from its middle.
pub(crate) fn secrets(machine: &Machine) -> Vec<String> {
    let mut secrets = Vec::new();
    for keyset in keysets() {
        // The first and last lines are equal in all keys.
        let lines: Vec<_> = keyset.private_key.lines().collect();
        secrets.push(lines[lines.len() / 2].to_owned());
        secrets.push(STANDARD.encode(&keyset.private_key)[200..260].to_owned());
    }
    for token in TOKENS {
        let file = machine.cluster.store.cluster_folder().join("secrets").join(token);
        let file: serde_json::Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let data = file["Data"].as_str().unwrap();
        secrets.push(data.to_owned());
        secrets.push(String::from_utf8(STANDARD.decode(data).unwrap()).unwrap());
    }
    secrets
}

#[test]
fn secrets_are_printed_only_on_request() {
    let machine = Machine::new(CONTROL_PLANE);
    let secrets = secrets(&machine);
    let found_in = |text: &str| secrets.iter().filter(|secret| text.contains(*secret)).count();
    let expect_none = |what: &str| {
        for flags in [&["-v", "8"][..], &["-v", "8", "-o", "json"]] {
            let ended = machine.run(what, flags);
            ended.with(0, &[]);
            assert_eq!(found_in(&ended.stdout) + found_in(&ended.stderr), 0, "{what} {flags:?}");
        }
    };
    expect_none("plan");
    expect_none("converge");
    // A change of a file is shown as a diff unless the file is secret.
    for file in [
        "srv/kubernetes/kube-apiserver/known_tokens.csv",
        "srv/kubernetes/kube-apiserver/service-account.key",
    ] {
        let file = machine.root().join(file);
        let text = fs::read_to_string(&file).unwrap();
        assert!(found_in(&text) > 0, "{} holds no secret", file.display());
        fs::write(&file, format!("{text}# changed\n")).unwrap();
    }
    expect_none("plan");

    assert_eq!(found_in(&machine.state(&[])), 0);
    assert!(found_in(&machine.state(&["--show-secrets"])) > 0);
}
