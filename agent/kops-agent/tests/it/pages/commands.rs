//! The commands of a page. The program runs the commands of `kops-agent`, and the flags of scripts are looked up in the
//! scripts.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use kops_agent_tests::example_store::{CONFIG_BASE, NODES};

use super::page::Page;
use super::repository::Repository;
use crate::example::{Ended, Machine};

/// Flags of other programs (kubelet, node_exporter) that pages mention.
pub const FLAGS_OF_OTHERS: [&str; 2] = ["--node-ip", "--collector.textfile.directory"];

/// A call of `kops-agent` on a page.
pub struct Call {
    pub text: String,
    arguments: Vec<String>,
}

/// All calls on a page. For alternatives (`warn|refuse`), there is one call for each word.
pub fn calls(page: &Page) -> Vec<Call> {
    let mut calls = Vec::new();
    for command in commands(page) {
        let words: Vec<String> =
            command.split_whitespace().map(|word| word.trim_matches(['[', ']', '…']).to_owned()).collect();
        let Some((program, arguments)) = words.split_first() else { continue };
        if !is_kops_agent(program) || arguments.is_empty() {
            continue;
        }
        let mut offered: Vec<Vec<String>> = vec![vec![]];
        for word in arguments.iter().filter(|word| !word.is_empty()) {
            let choices: Vec<&str> = word.split('|').collect();
            offered = choices
                .iter()
                .flat_map(|choice| {
                    offered.iter().map(|before| [&before[..], &[(*choice).to_owned()]].concat())
                })
                .collect();
        }
        calls.extend(offered.into_iter().map(|arguments| Call { text: command.clone(), arguments }));
    }
    calls
}

/// Whether the path is that of kops-agent. After a takeover, kops-agent is at nodeup's path.
pub fn is_kops_agent(program: &str) -> bool {
    matches!(
        program,
        "kops-agent"
            | "./kops-agent"
            | "/usr/bin/kops-agent"
            | "/opt/kops/bin/kops-agent"
            | "/opt/kops/bin/nodeup"
    )
}

/// The commands in the code lines and spans of a page. Shell syntax such as `sudo` and redirections is left out.
pub fn commands(page: &Page) -> Vec<String> {
    let blocks = page.blocks.iter().map(|block| block.text.replace("\\\n", " "));
    let lines = blocks.flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>());
    lines.chain(page.spans.iter().cloned()).flat_map(|line| parts(&line)).collect()
}

/// The commands in one line of shell.
fn parts(line: &str) -> Vec<String> {
    let mut parts = vec![vec![]];
    for word in line.split_whitespace() {
        match word {
            "#" => break,
            "|" | "&&" | "||" | ";" => parts.push(vec![]),
            "$" | "sudo" | "set" if parts.last().is_some_and(Vec::is_empty) => {}
            // A word with `=` before a command assigns a variable.
            _ if word.contains('=') && !word.starts_with('-') && parts.last().is_some_and(Vec::is_empty) => {}
            _ if word.starts_with('>') || word.starts_with("2>") => break,
            _ => parts.last_mut().unwrap().push(word.trim_end_matches(';').to_owned()),
        }
    }
    parts.into_iter().filter(|words| !words.is_empty()).map(|words| words.join(" ")).collect()
}

/// A flag that no verb has. The program first checks all arguments to its left, and then fails. So it changes nothing.
const UNKNOWN: &str = "--no-such-flag-of-any-page";

impl Call {
    /// Why the program rejects this call. `None` if the program accepts the call.
    pub fn refused_by(&self, agent: &Path, page: &Page) -> Option<String> {
        if matches!(self.verb(), "--version" | "--help") {
            return None;
        }
        let mut command = Command::new(agent);
        command.env_clear().args(self.filled(some_value));
        // The program checks the value of a flag only when it reads the next flag. So `-v 1` comes between the last
        // flag of the call and the unknown flag. A call in nodeup's style begins with a flag. There `-v` is a different
        // flag, so it is not added.
        if !self.verb().starts_with('-') {
            command.args(["-v", "1"]);
        }
        let ended = Ended::from_command(command.arg(UNKNOWN));
        let is_taken = ended.code == 2 && ended.stderr.contains(&format!("unexpected argument '{UNKNOWN}'"));
        (!is_taken).then(|| format!("{}: `{}`: {}", page.name, self.text, ended.stderr.trim()))
    }

    pub fn verb(&self) -> &str {
        &self.arguments[0]
    }

    /// Whether this call needs only a node and its store: no cloud, no API server.
    pub fn runs_on_a_node(&self) -> bool {
        // The example node has no configuration with the hash of `--follow=HASH`.
        if self.arguments.iter().any(|argument| argument.starts_with("--follow=")) {
            return false;
        }
        match self.verb() {
            "plan" | "converge" | "verify" | "status" | "doctor" | "reset" | "render" | "completions"
            | "man" => true,
            "explain" => self.arguments.get(1).is_some_and(|question| question != "--conf"),
            "config" => self.arguments.len() > 1,
            "facts" => !self.arguments.contains(&"--conf".to_owned()),
            _ => false,
        }
    }

    /// The call's arguments for a machine of the example cluster. Paths on the page are replaced by paths of the
    /// machine.
    pub fn on(&self, node: &Machine) -> Vec<String> {
        let store = &node.cluster.store;
        let path = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
        let value = |flag: &str| {
            Some(match flag {
                "--conf" => path(store.kube_env(NODES)),
                "--facts" => path(store.facts(NODES)),
                "--config-base" => CONFIG_BASE.to_owned(),
                "--instance-group" => NODES.to_owned(),
                "--root" => path(node.root().to_owned()),
                "--store-mirror" => format!("{CONFIG_BASE}={}", path(store.cluster_folder())),
                "--asset-hashes" => "/dev/null".to_owned(),
                "--manifests" => path(store.cluster_folder().join("config")),
                _ => return some_value(flag),
            })
        };
        let mut arguments = self.filled(value);
        let has = |flag: &str| self.arguments.iter().any(|word| word.split('=').next() == Some(flag));
        let verb = self.verb();
        let sub = if verb == "config" { self.arguments[1].as_str() } else { "" };
        let mut add = |flag: &str| {
            if !has(flag) {
                arguments.extend([flag.to_owned(), value(flag).unwrap()]);
            }
        };
        if matches!(verb, "plan" | "converge" | "verify" | "status" | "doctor" | "reset") {
            add("--root");
        }
        let is_machine = matches!(verb, "plan" | "converge" | "verify" | "doctor" | "render" | "explain")
            || sub == "dump"
            || (sub == "check" && !has("--instance-group") && !has("--manifests"));
        if is_machine {
            ["--conf", "--facts", "--config-base"].into_iter().for_each(&mut add);
        }
        if sub == "assets" {
            add("--config-base");
        }
        if sub == "derive" {
            ["--config-base", "--instance-group"].into_iter().for_each(&mut add);
        }
        if verb == "reset" && !has("--yes") {
            arguments.push("--yes".to_owned());
        }
        arguments
    }

    /// The call's arguments. If `value` returns a value for a flag, this value replaces the value on the page. Each
    /// placeholder becomes an example.
    fn filled(&self, value: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let mut filled: Vec<String> = Vec::new();
        let mut words = self.arguments.iter().peekable();
        while let Some(word) = words.next() {
            let (flag, given) = word.split_once('=').map_or((word.as_str(), None), |(f, v)| (f, Some(v)));
            match (flag.starts_with("--"), value(flag)) {
                (true, Some(value)) if given.is_some() => filled.push(format!("{flag}={value}")),
                (true, Some(value)) => {
                    filled.extend([flag.to_owned(), value]);
                    words.next_if(|next| !next.starts_with("--"));
                }
                _ => filled.push(placeholder(word).unwrap_or(word).to_owned()),
            }
        }
        filled
    }
}

/// A value for a flag. It replaces the value on the page, which may be a placeholder in capitals.
fn some_value(flag: &str) -> Option<String> {
    let value = match flag {
        "--conf" | "--facts" | "--asset-hashes" | "--kubeconfig" | "--admin-kubeconfig" => "/nonexistent",
        "--root" | "--cache" | "--out" => "/nonexistent",
        "--store-mirror" => "s3://a=/nonexistent",
        _ => return None,
    };
    Some(value.to_owned())
}

/// An example for a placeholder in capitals.
fn placeholder(word: &str) -> Option<&'static str> {
    Some(match word {
        "PATH" => "/etc/containerd/config.toml",
        "UNIT" => "kubelet.service",
        "FLAG" => "--cloud-provider",
        "SHELL" => "bash",
        "SECONDS" => "60",
        "N" => "0",
        "URL" => CONFIG_BASE,
        "NAME" => NODES,
        _ => return None,
    })
}

/// The flag at the start of a span of code.
pub fn flag(span: &str) -> Option<&str> {
    let word = span.split([' ', '=', '[']).next()?;
    word.starts_with("--").then_some(word)
}

/// All flags of all verbs.
pub fn flags(agent: &Path) -> BTreeSet<String> {
    let verbs = [
        "converge",
        "plan",
        "verify",
        "status",
        "doctor",
        "support-bundle",
        "reset",
        "render",
        "facts",
        "config assets",
        "config derive",
        "config dump",
        "config check",
        "controller",
        "controller takeover",
        "addons status",
        "addons diff",
        "addons apply",
        "fleet plan",
        "fleet reboot",
        "fleet rollout start",
        "fleet rollout status",
        "fleet status",
        "fleet tell",
        "fleet upgrade",
        "explain",
        "completions",
        "man",
        "nodeup",
    ];
    let mut flags = BTreeSet::new();
    for verb in verbs {
        let ended = Ended::from_command(Command::new(agent).env_clear().args(verb.split(' ')).arg("--help"));
        ended.with(0, &[]);
        let words = ended.stdout.split([' ', '\n', ',', '=', '[']).filter(|word| word.starts_with("--"));
        flags.extend(words.map(str::to_owned));
    }
    flags
}

/// Checks the calls of this repository's scripts on a page. Returns a line for each flag that the called script lacks.
pub fn wrong_scripts(page: &Page, repository: &Repository) -> Vec<String> {
    let mut wrong = Vec::new();
    for command in commands(page) {
        let mut words = command.split_whitespace();
        let Some(program) = words.next().filter(|word| {
            word.starts_with("packaging/") || word.starts_with("tests/") || word.starts_with("../")
        }) else {
            continue;
        };
        // This check skips a path that is no file of the repository. Another test checks the paths on the page.
        let Some(script) = repository.script(program) else { continue };
        for flag in words.filter_map(flag) {
            if !script.contains(flag) {
                wrong.push(format!("{}: `{command}`: {program} has no {flag}", page.name));
            }
        }
    }
    wrong
}
