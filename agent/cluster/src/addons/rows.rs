//! The state of each add-on, as `kops-agent addons status` shows it.

use std::fmt::Write as _;

use kops_agent_spec::terminal::{columns, one_line};
use serde::Serialize;

use crate::fleet::short_hash;
use crate::fleet::table::shown;

/// The state of an add-on in the cluster, compared with the channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// The cluster has the channel's version.
    Current,
    /// The installed version is not the channel's.
    UpdateDue,
    /// The cluster has no version of the add-on.
    New,
    /// Only the add-on's own certificate authority is missing.
    AuthorityDue,
    /// The channel's entry is invalid, so kops-agent cannot apply the add-on.
    Wrong,
    /// A person has paused the add-on, so the add-on stays unchanged.
    Paused,
    /// The add-on is installed, but no channel has it. The add-on stays unchanged.
    Unlisted,
}

impl State {
    fn in_words(self) -> &'static str {
        match self {
            State::Current => "current",
            State::UpdateDue => "update due",
            State::New => "new",
            State::AuthorityDue => "authority due",
            State::Wrong => "wrong",
            State::Paused => "paused",
            State::Unlisted => "in no channel",
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub name: String,
    pub namespace: String,
    pub state: State,
    /// The hash of the installed version; empty if the add-on is new or its entry was skipped.
    pub installed: String,
    /// The hash of the version in the channel; empty if the channel's entry has no hash.
    pub wanted: String,
    pub channel: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Row {
    /// Whether the add-on needs no work.
    pub fn is_healthy(&self) -> bool {
        matches!(self.state, State::Current | State::Paused | State::Unlisted)
    }

    /// A table with one line per add-on. The problems of the add-ons are below the table.
    pub fn table(rows: &[Row]) -> String {
        if rows.is_empty() {
            return "There are no add-ons.\n".to_owned();
        }
        let short = |hash: &str| shown(&short_hash(hash));
        let header = ["NAME", "NAMESPACE", "STATE", "INSTALLED", "CHANNEL"];
        let line = |row: &Row| {
            let (name, namespace, state) =
                (row.name.clone(), row.namespace.clone(), row.state.in_words().to_owned());
            [name, namespace, state, short(&row.installed), short(&row.wanted)]
        };
        let mut text = columns(header, rows.iter().map(line));
        for row in rows {
            if let Some(problem) = &row.problem {
                let [name, problem] = [&row.name, problem].map(|text| one_line(text, usize::MAX));
                let _ = writeln!(text, "{name}: {problem}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_column_for_installed_and_one_for_wanted_versions() {
        let row = |name: &str, state, installed: &str, wanted: &str| Row {
            name: name.into(),
            namespace: "kube-system".into(),
            state,
            installed: installed.into(),
            wanted: wanted.into(),
            channel: String::new(),
            problem: None,
        };
        let mut rows = vec![
            row("coredns.addons.k8s.io", State::UpdateDue, "0123456789abcdef", "fedcba9876543210"),
            row("a", State::New, "", "ffff"),
        ];
        assert_eq!(
            Row::table(&rows),
            "NAME                   NAMESPACE    STATE       INSTALLED     CHANNEL\n\
             coredns.addons.k8s.io  kube-system  update due  0123456789ab  fedcba987654\n\
             a                      kube-system  new         -             ffff\n"
        );
        rows[1].problem = Some("it is\u{1b}[2J wrong".into());
        rows[1].name.push('\u{1b}');
        let said = Row::table(&rows);
        assert!(!said.contains('\u{1b}') && said.contains(": it is [2J wrong\n"), "{said}");
        assert_eq!(Row::table(&[]), "There are no add-ons.\n");
    }
}
