//! The message of the condition `KopsConfigured`: one line for people and programs.
//!
//! `configuration HASH since TIME; superseded by HASH since TIME; PROBLEM`. The second and the third part are optional.

use kops_agent_spec::terminal::one_line;
use serde::Serialize;

const BETWEEN: &str = "; ";
const RUNS: &str = "configuration ";
const SINCE: &str = " since ";
const SUPERSEDED: &str = "superseded by ";
const NONE_YET: &str = "no configuration yet";
/// Maximum length of the problem, in characters. Every client that lists Nodes gets this text.
const LONGEST_PROBLEM: usize = 500;
/// Maximum length of a hash, in bytes. A real hash has 44, but a kubelet can write any value into its own Node.
const LONGEST_HASH: usize = 100;
/// Tables and messages show this many of the first characters of a hash.
const SHOWN_OF_HASH: usize = 12;

/// A configuration that a node runs, or a newer configuration that supersedes the node's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// The configuration's `NodeupConfigHash`.
    pub hash: String,
    /// For a configuration that a node runs: when the node began to run it. For a newer configuration: when it superseded the node's
    /// configuration. In RFC 3339; empty if unknown.
    pub since: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The configuration to which the node has converged; `None` before the first convergence.
    pub runs: Option<Configuration>,
    /// The configuration that a new machine would get in place of this machine. Set only if it differs from this machine's
    /// configuration.
    pub superseded_by: Option<Configuration>,
    /// The problem; empty if there is none.
    pub problem: String,
}

impl Told {
    pub fn message(&self) -> String {
        let runs =
            self.runs.as_ref().map_or_else(|| NONE_YET.to_owned(), |runs| format!("{RUNS}{}", runs.text()));
        let superseded = self.superseded_by.as_ref().map(|by| format!("{SUPERSEDED}{}", by.text()));
        let problem = Some(one_line(&self.problem, LONGEST_PROBLEM)).filter(|problem| !problem.is_empty());
        [Some(runs), superseded, problem].into_iter().flatten().collect::<Vec<_>>().join(BETWEEN)
    }

    /// Parses a message. If kops-agent did not write the message, the whole message becomes the problem.
    pub fn read(message: &str) -> Told {
        let (first, rest) = split(message);
        let runs = first.strip_prefix(RUNS).and_then(Configuration::read);
        if runs.is_none() && first != NONE_YET {
            return Told { problem: message.to_owned(), ..Told::default() };
        }
        let (second, problem) = split(rest);
        match second.strip_prefix(SUPERSEDED).and_then(Configuration::read) {
            Some(by) => Told { runs, superseded_by: Some(by), problem: problem.to_owned() },
            None => Told { runs, superseded_by: None, problem: rest.to_owned() },
        }
    }
}

fn split(text: &str) -> (&str, &str) {
    text.split_once(BETWEEN).unwrap_or((text, ""))
}

impl Configuration {
    fn text(&self) -> String {
        match self.since.as_str() {
            "" => self.hash.clone(),
            since => format!("{}{SINCE}{since}", self.hash),
        }
    }

    /// Parses the output of [`Configuration::text`]; `None` if the hash is invalid.
    fn read(text: &str) -> Option<Configuration> {
        let (hash, since) = text.split_once(SINCE).unwrap_or((text, ""));
        is_hash(hash).then(|| Configuration { hash: hash.to_owned(), since: since.to_owned() })
    }
}

/// The first characters of a `NodeupConfigHash`, for people. These characters distinguish the configurations of a cluster.
pub fn short_hash(hash: &str) -> String {
    hash.chars().take(SHOWN_OF_HASH).collect()
}

/// Whether a text may be a `NodeupConfigHash`.
pub(super) fn is_hash(text: &str) -> bool {
    (1..=LONGEST_HASH).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn configuration() -> impl Strategy<Value = Configuration> {
        ("[A-Za-z0-9+/]{1,43}=", "(|2026-11-[0-3][0-9]T00:00:00Z)")
            .prop_map(|(hash, since)| Configuration { hash, since })
    }

    proptest! {
        #[test]
        fn a_message_is_read_as_it_was_written(
            runs in proptest::option::of(configuration()),
            superseded_by in proptest::option::of(configuration()),
            problem in "(|the [a-z;: ]{0,80})",
        ) {
            let told = Told { runs, superseded_by, problem };
            prop_assert_eq!(Told::read(&told.message()), told);
        }

        #[test]
        fn anything_is_read(message in any::<String>()) {
            let told = Told::read(&message);
            prop_assert!(told.runs.is_some() || told.superseded_by.is_none() || message.starts_with(NONE_YET));
        }
    }

    #[test]
    fn a_message_reads_as_a_sentence() {
        let at = |hash: &str, since: &str| Some(Configuration { hash: hash.into(), since: since.into() });
        let told = Told {
            runs: at("a=", "2026-01-02T03:04:05Z"),
            superseded_by: at("b=", "2026-02-03T04:05:06Z"),
            problem: "the run failed:\nno network".into(),
        };
        assert_eq!(
            told.message(),
            "configuration a= since 2026-01-02T03:04:05Z; superseded by b= since 2026-02-03T04:05:06Z; \
             the run failed: no network"
        );
        assert_eq!(Told::default().message(), "no configuration yet");
    }

    #[test]
    fn messages_of_another_form_have_no_hash() {
        for message in
            ["", "all is well", "configuration of mine", "configuration ", "configuration a\u{1b}="]
        {
            let told = Told::read(message);
            assert_eq!((told.runs, told.problem.as_str()), (None, message));
        }
        let long = "x".repeat(9000);
        assert!(Told { problem: long, ..Told::default() }.message().len() < 600);
    }
}
