//! `kops-agent fleet status`: which configuration each node of a cluster runs, as the Nodes tell it.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use kops_agent_plan::fleet::{Row, rows};
use kops_agent_process::output::{Output, one_line};
use kops_agent_process::{exit, output};

use super::args::FleetStatusArgs;
use super::{nodes, own_kubeconfig, slots};
use crate::api_error::ApiError;
use crate::kubernetes;

/// What people need of a hash to tell it from another.
const SHOWN_OF_HASH: usize = 12;
/// The same of a problem, in characters: any kubelet may write any amount into its own Node.
const SHOWN_OF_PROBLEM: usize = 600;

/// Prints how the nodes are, and ends with 4 where one is not ready, not configured, superseded, or has told nothing.
///
/// # Errors
/// There is no kubeconfig, or the API server refuses to list Nodes, or does not answer.
pub async fn status(args: &FleetStatusArgs) -> Result<u8> {
    let kubeconfig = own_kubeconfig::find(args.kubeconfig.as_deref(), |name| std::env::var_os(name))?;
    let client = kubernetes::client(Some(&kubeconfig))?;
    let (nodes, slots) = tokio::join!(nodes::all(client.clone()), slots::held(client));
    let rows =
        rows(nodes.with_context(|| format!("listing Nodes by the kubeconfig {}", kubeconfig.display()))?);
    match args.output {
        Output::Json => output::print_json(&rows)?,
        Output::Text => output::print_text(&(table(&rows) + &of_slots(slots)))?,
    };
    Ok(if rows.iter().all(Row::is_well) { exit::CONVERGED } else { exit::DIFFERENT })
}

/// Which nodes have slots, a line each; that it is not known is a line, too.
fn of_slots(slots: Result<Vec<String>, ApiError>) -> String {
    let lines = slots.unwrap_or_else(|error| vec![format!("which nodes have slots is not known: {error}")]);
    lines.iter().map(|line| one_line(line, SHOWN_OF_PROBLEM) + "\n").collect()
}

fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "There are no Nodes.\n".to_owned();
    }
    let header = ["GROUP", "NAME", "READY", "CONFIGURED", "REASON", "HASH", "SUPERSEDED BY", "KUBELET"];
    let lines: Vec<[String; 8]> =
        std::iter::once(header.map(str::to_owned)).chain(rows.iter().map(line)).collect();
    let mut text = output::columns(&lines);
    for row in rows.iter().filter(|row| !row.problem.is_empty()) {
        let (name, problem) = (one_line(&row.name, usize::MAX), one_line(&row.problem, SHOWN_OF_PROBLEM));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}: {problem}");
    }
    text
}

fn line(row: &Row) -> [String; 8] {
    let told = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let short =
        |hash: Option<&str>| told(&hash.unwrap_or_default().chars().take(SHOWN_OF_HASH).collect::<String>());
    [
        told(&row.group),
        told(&row.name),
        told(&row.ready),
        told(&row.configured),
        told(&row.reason),
        short(row.runs.as_ref().map(|runs| runs.hash.as_str())),
        short(row.superseded_by.as_deref()),
        told(&row.kubelet_version),
    ]
}

#[cfg(test)]
mod tests {
    use kops_agent_plan::fleet::Configuration;

    use super::*;

    #[test]
    fn the_table_has_a_line_a_node_and_what_is_wrong_below() {
        let runs = Some(Configuration { hash: "0123456789abcdef=".into(), since: "t".into() });
        let row = |name: &str| Row {
            name: name.into(),
            group: "nodes".into(),
            ready: "True".into(),
            ..Row::default()
        };
        let mut rows = vec![
            Row {
                configured: "False".into(),
                reason: "RunFailed".into(),
                runs,
                superseded_by: Some("fedcba9876543210=".into()),
                problem: "the run of t failed: no\u{1b}[2J network".into(),
                kubelet_version: "v1.36.0".into(),
                ..row("i-1")
            },
            row("i-2"),
        ];
        assert_eq!(
            table(&rows),
            "GROUP  NAME  READY  CONFIGURED  REASON     HASH          SUPERSEDED BY  KUBELET\n\
             nodes  i-1   True   False       RunFailed  0123456789ab  fedcba987654   v1.36.0\n\
             nodes  i-2   True   -           -          -             -              -\n\
             i-1: the run of t failed: no [2J network\n"
        );
        rows[1].reason = "\u{9b}2J".into();
        assert!(!table(&rows).contains('\u{9b}'));
        assert_eq!(table(&[]), "There are no Nodes.\n");
    }
}
