//! `kops-agent addons status`: prints the state of each add-on.

use std::fmt::Write as _;

use anyhow::Result;

use kops_agent_controller::addons::Scene;
use kops_agent_controller::addons::status::{self, Row, State};
use kops_agent_process::exit;
use kops_agent_process::output::{columns, one_line};

use crate::cli::{AddonsArgs, Output};
use crate::output;

/// Prints the states. Returns exit code 4 if an add-on is due or wrong.
pub(super) async fn run(args: &AddonsArgs) -> Result<u8> {
    let rows = status::rows(&Scene::open(&args.channels.options()?, args.name.as_deref()).await?).await?;
    match args.output {
        Output::Json => output::print_json(&rows)?,
        Output::Text => output::print_text(&table(&rows))?,
    };
    Ok(if rows.iter().all(Row::is_healthy) { exit::CONVERGED } else { exit::DIFFERENT })
}

fn in_words(state: State) -> &'static str {
    match state {
        State::Current => "current",
        State::UpdateDue => "update due",
        State::New => "new",
        State::AuthorityDue => "authority due",
        State::Wrong => "wrong",
        State::Paused => "paused",
        State::Unlisted => "in no channel",
    }
}

/// How many characters of a hash the table shows.
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
            (row.name.clone(), row.namespace.clone(), in_words(row.state).to_owned());
        [name, namespace, state, short(&row.installed), short(&row.wanted)]
    };
    let lines: Vec<[String; 5]> = std::iter::once(header).chain(rows.iter().map(line)).collect();
    let mut text = columns(&lines);
    for row in rows {
        if let Some(problem) = &row.problem {
            let [name, problem] = [&row.name, problem].map(|text| one_line(text, usize::MAX));
            let _ = writeln!(text, "{name}: {problem}");
        }
    }
    text
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
