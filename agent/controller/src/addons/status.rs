//! `kops-agent addons status`: prints the state of each add-on.

use std::fmt::Write as _;

use anyhow::Result;
use kops_agent_process::output::Output;
use kops_agent_process::{exit, output};
use serde::Serialize;

use super::standing::{Scene, Standing};

/// The state of an add-on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum State {
    /// The cluster has the channel's version.
    Current,
    /// The installed version is not the channel's.
    UpdateDue,
    /// The cluster has no version of the add-on.
    New,
    /// Only the add-on's authority is missing.
    AuthorityDue,
    /// The channel's entry is invalid, so it cannot be applied.
    Wrong,
    /// A person has paused the add-on, so the add-on stays unchanged.
    Paused,
    /// The add-on is installed, but no channel has it. The add-on stays unchanged.
    Unlisted,
}

impl State {
    fn from_standing(standing: &Standing) -> State {
        match (&standing.problem, &standing.due, &standing.installed) {
            (Some(_), _, _) => State::Wrong,
            _ if standing.is_paused => State::Paused,
            (None, None, _) => State::Current,
            (None, Some(due), _) if due.version.is_none() => State::AuthorityDue,
            (None, Some(_), None) => State::New,
            (None, Some(_), Some(_)) => State::UpdateDue,
        }
    }

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
struct Row {
    name: String,
    namespace: String,
    state: State,
    /// The hash of the installed version; empty if the add-on is new or its entry was skipped.
    installed: String,
    /// The hash of the channel's version; empty if the channel has no hash for it.
    wanted: String,
    channel: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Prints the states. Returns exit code 4 if an add-on is due or wrong.
pub async fn run(scene: &Scene, how: Output) -> Result<u8> {
    let installed = scene.installed().await?;
    let standings = scene.standings(scene.addons(), &installed).await?;
    let mut rows: Vec<Row> = standings.iter().map(row).collect();
    for left_out in scene.left_out() {
        rows.push(Row {
            name: left_out.name.clone(),
            namespace: String::new(),
            state: State::Wrong,
            installed: String::new(),
            wanted: String::new(),
            channel: left_out.problem.source_file.clone(),
            problem: Some(left_out.problem.to_string()),
        });
    }
    if !scene.is_of_one {
        let is_listed = |namespace: &str, name: &str| {
            standings.iter().any(|one| one.addon.namespace() == namespace && one.addon.name == name)
        };
        let unlisted =
            installed.versions.into_iter().filter(|((namespace, name), _)| !is_listed(namespace, name));
        rows.extend(unlisted.map(|((namespace, name), version)| Row {
            name,
            namespace,
            state: State::Unlisted,
            installed: version.manifest_hash,
            wanted: String::new(),
            channel: version.channel.unwrap_or_default(),
            problem: None,
        }));
    }
    match how {
        Output::Json => output::print_json(&rows)?,
        Output::Text => output::print_text(&table(&rows))?,
    };
    let is_healthy =
        rows.iter().all(|row| matches!(row.state, State::Current | State::Paused | State::Unlisted));
    Ok(if is_healthy { exit::CONVERGED } else { exit::DIFFERENT })
}

fn row(standing: &Standing) -> Row {
    Row {
        name: standing.addon.name.clone(),
        namespace: standing.addon.namespace().to_owned(),
        state: State::from_standing(standing),
        installed: standing.installed.as_ref().map(|one| one.manifest_hash.clone()).unwrap_or_default(),
        wanted: standing.addon.spec.manifest_hash.clone(),
        channel: standing.addon.channel.clone(),
        problem: standing.problem.clone(),
    }
}

/// The number of characters of a hash that the table shows.
const SHOWN_OF_HASH: usize = 12;

fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "There are no add-ons.\n".to_owned();
    }
    let short = |hash: &str| match hash.is_empty() {
        true => "-".to_owned(),
        false => hash.chars().take(SHOWN_OF_HASH).collect(),
    };
    let header = ["NAME", "NAMESPACE", "STATE", "INSTALLED", "CHANNEL"].map(str::to_owned);
    let line = |row: &Row| {
        let (name, namespace, state) =
            (row.name.clone(), row.namespace.clone(), row.state.in_words().to_owned());
        [name, namespace, state, short(&row.installed), short(&row.wanted)]
    };
    let lines: Vec<[String; 5]> = std::iter::once(header).chain(rows.iter().map(line)).collect();
    let mut text = output::columns(&lines);
    for row in rows {
        if let Some(problem) = &row.problem {
            let [name, problem] = [&row.name, problem].map(|text| output::one_line(text, usize::MAX));
            let _ = writeln!(text, "{name}: {problem}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_column_for_what_is_there_and_for_what_is_wanted() {
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
            table(&rows),
            "NAME                   NAMESPACE    STATE       INSTALLED     CHANNEL\n\
             coredns.addons.k8s.io  kube-system  update due  0123456789ab  fedcba987654\n\
             a                      kube-system  new         -             ffff\n"
        );
        rows[1].problem = Some("it is\u{1b}[2J wrong".into());
        rows[1].name.push('\u{1b}');
        let said = table(&rows);
        assert!(!said.contains('\u{1b}') && said.contains(": it is [2J wrong\n"), "{said}");
        assert_eq!(table(&[]), "There are no add-ons.\n");
    }
}
