//! The one place that prints results: for people in plain words, for machines as JSON.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};

use anyhow::Result;
use kops_agent_host::Report;
use kops_agent_plan::diff::text::{self, Style};
use kops_agent_plan::diff::{Plan, Summary};
use kops_agent_plan::facts::Facts;
use kops_agent_plan::resource::{DesiredState, Resource};
use serde::Serialize;

use crate::cli::{Color, Output};
use crate::exit;

/// Writes to standard output; a reader that has gone away is no error.
pub fn print_bytes(bytes: &[u8]) -> Result<u8> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(exit::CONVERGED),
    }
}

/// Prints everything a node must have.
pub fn print_state(state: &DesiredState, output: Output) -> Result<u8> {
    match output {
        Output::Json => {
            #[derive(Serialize)]
            struct State<'a> {
                resources: Vec<&'a Resource>,
            }
            print_json(&State { resources: state.iter().map(|(_, resource)| resource).collect() })
        }
        Output::Text => {
            let mut text = String::new();
            for (id, _) in state.iter() {
                writeln!(text, "{id}")?;
            }
            print_bytes(text.as_bytes())
        }
    }
}

/// Prints what would change.
pub fn print_plan(plan: &Plan, output: Output, color: Color) -> Result<u8> {
    match output {
        Output::Json => print_json(plan),
        Output::Text => {
            print_bytes(text::plan(plan, Style { colour: in_color(color), diffs: true }).as_bytes())
        }
    }
}

/// Prints what was changed.
pub fn print_report(report: &Report, output: Output) -> Result<u8> {
    match output {
        Output::Json => print_json(report),
        Output::Text if report.applied.is_empty() => {
            print_bytes(b"Nothing to do: this node is as it should be.\n")
        }
        Output::Text => {
            let Summary { create, change, restart } = report.summary;
            print_bytes(
                format!("Converged: {create} created, {change} changed, {restart} restarted.\n").as_bytes(),
            )
        }
    }
}

/// Prints what was observed.
pub fn print_facts(facts: &Facts, output: Output) -> Result<u8> {
    match output {
        Output::Json => print_json(facts),
        Output::Text => print_bytes(serde_yaml::to_string(facts)?.as_bytes()),
    }
}

/// An error and its causes in one line, without saying anything twice.
pub fn error_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(if cause.contains('\n') { ":\n" } else { ": " });
        }
        text.push_str(&cause);
    }
    text
}

fn print_json<T: Serialize>(value: &T) -> Result<u8> {
    let mut json = serde_json::to_vec_pretty(value)?;
    json.push(b'\n');
    print_bytes(&json)
}

fn in_color(color: Color) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    }
}
