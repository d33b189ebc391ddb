//! Completes flags with the names of the cluster's Nodes and instance groups.
//!
//! A shell waits for the names while a user types. So this module asks the API server once, for at most a second, and runs no login
//! program. If the names are unknown for any reason, there are none.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use kops_agent_controller::fleet::names;
use kops_agent_node::doctor::deadline::run_in_thread;
use tokio::runtime::Builder;

use super::addons::OF_MACHINE;

/// The time in which the API server must answer, including the connection.
const WITHIN: Duration = Duration::from_millis(900);
/// The characters at which bash splits a line into words, besides spaces.
const BREAKS: [char; 3] = ['@', ':', '='];

/// Candidates for a flag whose value is the name of an instance group: the groups of the Nodes.
pub(super) fn instance_groups() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let mut groups = BTreeMap::new();
        for (_, group) in names_in_time() {
            *groups.entry(group).or_insert(0_usize) += 1;
        }
        groups.remove("");
        let candidate = |(group, nodes): (String, usize)| {
            let nodes = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
            CompletionCandidate::new(group).help(Some(nodes.into()))
        };
        groups.into_iter().map(candidate).collect()
    })
}

/// Candidates for a flag whose value is the name of a Node, with the groups of the Nodes as help.
pub(super) fn nodes() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let candidate = |(node, group): (String, String)| {
            CompletionCandidate::new(node).help((!group.is_empty()).then(|| group.into()))
        };
        names_in_time().into_iter().map(candidate).collect()
    })
}

/// The names of the Nodes, each with its instance group.
fn names_in_time() -> Vec<(String, String)> {
    let Ok(runtime) = Builder::new_current_thread().enable_time().build() else { return Vec::new() };
    let asking = || names_from_api_server(&std::env::args_os().collect::<Vec<_>>()).unwrap_or_default();
    runtime.block_on(run_in_thread(WITHIN, asking)).unwrap_or_default()
}

/// The names of the Nodes from the API server to which the typed command would connect. `None` if that API server is unknown or does not
/// answer.
fn names_from_api_server(typed: &[OsString]) -> Option<Vec<(String, String)>> {
    let of_addons = typed.iter().any(|word| word == "addons").then_some(Path::new(OF_MACHINE));
    let home = std::env::var_os("HOME");
    let kubeconfig = value_of("--kubeconfig", typed)?.map(|path| without_tilde(&path, home));
    let context = value_of("--context", typed)?;
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(names::from_api_server(kubeconfig.as_deref(), context.as_deref(), of_addons))
}

/// The value of a flag in a command that is being typed. bash makes `=` a separate word. The outer `None` means that the value is unknown,
/// because bash has split the value into words.
fn value_of(flag: &str, typed: &[OsString]) -> Option<Option<String>> {
    let mut words = typed.iter().filter_map(|word| word.to_str());
    let named = words
        .find_map(|word| word.strip_prefix(flag).filter(|rest| rest.is_empty() || rest.starts_with('=')));
    let value = match named {
        None => return Some(None),
        Some("") => words.find(|word| *word != "=").unwrap_or_default(),
        Some(rest) => &rest[1..],
    };
    let is_break = |word: &str| !word.is_empty() && word.chars().all(|c| BREAKS.contains(&c));
    match is_break(value) || words.next().is_some_and(is_break) {
        true => None,
        false => Some(Some(value.to_owned()).filter(|value| !value.is_empty())),
    }
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
            assert_eq!(value(words), Some(Some("a".to_owned())), "{words:?}");
        }
        for words in [&["--kubeconfig"][..], &["--kubeconfig="], &["--kubeconfigs", "a"], &[]] {
            assert_eq!(value(words), Some(None), "{words:?}");
        }
    }

    #[test]
    fn a_value_that_bash_has_split_is_not_known() {
        for words in [
            &["--context", "admin", "@", "kubernetes", "--instance-group", ""][..],
            &["--context", "=", "admin", "@", "kubernetes", "--instance-group", ""],
            &["--context", "arn", ":", "aws", ":", "eks", "--instance-group", ""],
            &["--context", "::", "a"],
            &["--context", "a", "=", "b"],
        ] {
            let typed: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(value_of("--context", &typed), None, "{words:?}");
        }
    }

    #[test]
    fn a_tilde_is_the_home_directory() {
        assert_eq!(without_tilde("~/a", Some("/root".into())), Path::new("/root/a"));
        assert_eq!(without_tilde("~/a", None), Path::new("~/a"));
        assert_eq!(without_tilde("/a~/b", Some("/root".into())), Path::new("/a~/b"));
    }
}
