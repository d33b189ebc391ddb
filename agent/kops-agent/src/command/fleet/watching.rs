//! `kops-agent fleet status --watch`: prints the table again after each change, or as JSON a line for each changed node.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;
use time::OffsetDateTime;

use kops_agent_cluster::fleet::table::table;
use kops_agent_cluster::fleet::{Row, rows};
use kops_agent_controller::fleet::watching;
use kops_agent_kube::node_api::Nodes;
use kops_agent_process::exit;
use kops_agent_process::output::{json_line, plain_lines, print_if_read};

use crate::cli::Output;

/// Prints all nodes and then each change, until a signal arrives or the output is closed. Fails if the first list of
/// Nodes fails. Later failures are retried.
pub(super) async fn watch(nodes: Nodes, output: Output) -> Result<u8> {
    let mut printed = Printed::default();
    let print = |nodes| -> Result<bool> {
        let text = printed.anew(rows(nodes, OffsetDateTime::now_utc()), output)?;
        Ok(text.is_empty() || print_if_read(text.as_bytes())?)
    };
    watching::until_stopped(nodes, print).await?;
    Ok(exit::CONVERGED)
}

#[derive(Default)]
struct Printed {
    table: Option<String>,
    rows: BTreeMap<String, Row>,
}

/// The JSON line for a deleted node.
#[derive(Serialize)]
struct Gone<'a> {
    name: &'a str,
    gone: bool,
}

impl Printed {
    /// The text to print for `rows`. Empty if nothing has changed since the last call.
    fn anew(&mut self, rows: Vec<Row>, output: Output) -> Result<String> {
        match output {
            Output::Text => Ok(self.table_anew(plain_lines(&table(&rows)))),
            Output::Json => self.lines_anew(rows),
        }
    }

    fn table_anew(&mut self, table: String) -> String {
        let text = match &self.table {
            None => table.clone(),
            Some(before) if *before == table => return String::new(),
            Some(_) => format!("\n{table}"),
        };
        self.table = Some(table);
        text
    }

    fn lines_anew(&mut self, rows: Vec<Row>) -> Result<String> {
        let rows: BTreeMap<String, Row> = rows.into_iter().map(|row| (row.name.clone(), row)).collect();
        let mut text = String::new();
        for name in self.rows.keys().filter(|name| !rows.contains_key(*name)) {
            text += &json_line(&Gone { name, gone: true })?;
        }
        for (name, row) in &rows {
            if self.rows.get(name) != Some(row) {
                text += &json_line(row)?;
            }
        }
        self.rows = rows;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn row(name: &str, reason: &str) -> Row {
        Row { name: name.into(), reason: reason.into(), ..Row::default() }
    }

    #[test]
    fn a_table_is_printed_again_where_it_is_another() {
        let mut printed = Printed::default();
        let mut anew = |reason: &str| printed.anew(vec![row("a", reason)], Output::Text).unwrap();
        let first = anew("Converged");
        assert!(first.starts_with("GROUP") && first.contains("Converged"), "{first}");
        assert_eq!(anew("Converged"), "");
        let second = anew("RunFailed");
        assert!(second.starts_with("\nGROUP") && second.contains("RunFailed"), "{second}");
    }

    #[test]
    fn only_changed_rows_get_a_line() {
        let mut printed = Printed::default();
        let mut anew = |rows: Vec<Row>| -> Vec<Value> {
            let text = printed.anew(rows, Output::Json).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let named = |lines: &[Value]| lines.iter().map(|line| line["name"].clone()).collect::<Vec<_>>();
        assert_eq!(named(&anew(vec![row("b", "Converged"), row("a", "Converged")])), ["a", "b"]);
        assert_eq!(anew(vec![row("b", "Converged"), row("a", "Converged")]), [Value::Null; 0]);
        let changed = anew(vec![row("b", "Superseded"), row("c", "Converged")]);
        assert_eq!(changed[0], json!({"schemaVersion": 1, "name": "a", "gone": true}));
        assert_eq!(named(&changed[1..]), ["b", "c"]);
    }
}
