//! Completes flags with the names of the cluster's Nodes and instance groups.
//!
//! A shell waits for the names while a user types. So this module asks the API server once, for at most a second, and runs no login program.
//! If the names are unknown for any reason, there are none.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use kops_agent_controller::fleet::nodes::names_and_groups;
use kops_agent_kube::{Chosen, client_without_login};
use tokio::runtime::Builder;

use super::addons::OF_MACHINE;

/// The time in which the API server must answer, including the connection.
const WITHIN: Duration = Duration::from_millis(900);
/// The stack of the asking thread, in bytes. Without optimization, a request needs more than other threads get.
const STACK: usize = 8 << 20;

/// Candidates for a flag that takes an instance group: the groups of the Nodes.
pub(super) fn instance_groups() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let mut groups = BTreeMap::new();
        for (_, group) in names() {
            *groups.entry(group).or_insert(0_usize) += 1;
        }
        groups.remove("");
        let candidate = |(group, nodes): (String, usize)| {
            CompletionCandidate::new(group).help(Some(format!("{nodes} nodes").into()))
        };
        groups.into_iter().map(candidate).collect()
    })
}

/// Candidates for a flag that takes a Node.
pub(super) fn nodes() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let candidate = |(node, group): (String, String)| {
            CompletionCandidate::new(node).help((!group.is_empty()).then(|| group.into()))
        };
        names().into_iter().map(candidate).collect()
    })
}

/// The names of the Nodes, each with its instance group.
fn names() -> Vec<(String, String)> {
    let (tell, told) = mpsc::channel();
    let asking = move || {
        // A receiver that has timed out is gone.
        let _ = tell.send(asked(&std::env::args_os().collect::<Vec<_>>()).unwrap_or_default());
    };
    // A thread that hangs, for example on a file, ends with the process.
    match thread::Builder::new().name("names".into()).stack_size(STACK).spawn(asking) {
        Ok(_) => told.recv_timeout(WITHIN).unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}

/// Asks the API server that the typed command would ask.
fn asked(typed: &[OsString]) -> Option<Vec<(String, String)>> {
    let variable = |name: &str| std::env::var_os(name);
    let of_addons = typed.iter().any(|word| word == "addons").then_some(Path::new(OF_MACHINE));
    let kubeconfig = value_of("--kubeconfig", typed).map(|path| without_tilde(&path, variable("HOME")));
    let context = value_of("--context", typed);
    let chosen = Chosen::find(kubeconfig.as_deref(), context.as_deref(), of_addons, variable).ok()?;
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async { names_and_groups(client_without_login(&chosen).ok()?).await.ok() })
}

/// The value of a flag in a command that is being typed. bash makes `=` a word of its own.
fn value_of(flag: &str, typed: &[OsString]) -> Option<String> {
    let words: Vec<&str> = typed.iter().filter_map(|word| word.to_str()).collect();
    let at = words.iter().position(|word| {
        word.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    })?;
    let value = match words[at].split_once('=') {
        Some((_, value)) => value,
        None => words[at + 1..].iter().copied().find(|word| *word != "=")?,
    };
    Some(value.to_owned()).filter(|value| !value.is_empty())
}

/// The path that a shell would make of a typed path.
fn without_tilde(path: &str, home: Option<OsString>) -> PathBuf {
    match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_has_its_value_in_each_spelling_of_a_shell() {
        let value =
            |words: &[&str]| value_of("--kubeconfig", &words.iter().map(OsString::from).collect::<Vec<_>>());
        for words in [
            &["kops-agent", "--kubeconfig", "a", "--instance-group", ""][..],
            &["kops-agent", "--kubeconfig=a", "--instance-group", ""],
            &["kops-agent", "--kubeconfig", "=", "a", "--instance-group", ""],
        ] {
            assert_eq!(value(words).as_deref(), Some("a"), "{words:?}");
        }
        for words in [&["--kubeconfig"][..], &["--kubeconfig="], &["--kubeconfigs", "a"], &[]] {
            assert_eq!(value(words), None, "{words:?}");
        }
    }

    #[test]
    fn a_tilde_is_the_home_directory() {
        assert_eq!(without_tilde("~/a", Some("/root".into())), Path::new("/root/a"));
        assert_eq!(without_tilde("~/a", None), Path::new("~/a"));
        assert_eq!(without_tilde("/a~/b", Some("/root".into())), Path::new("/a~/b"));
    }
}
