//! The one place that prints results: for people in plain words, for machines as JSON.

mod findings;

use std::fmt::Write as _;
use std::io::IsTerminal;

use anyhow::Result;
use kops_agent_host::{Drift, Report};
use kops_agent_plan::diff::text::{self, Style};
use kops_agent_plan::diff::{Keeping, Plan, Summary};
use kops_agent_plan::explain::{self, Line};
use kops_agent_plan::resource::DesiredState;
use kops_agent_process::output::takes_colour;
use kops_agent_spec::facts::Facts;
use serde::Serialize;
use serde_json::Value;

pub use findings::print_findings;
pub use kops_agent_process::output::{plain_lines, print_bytes, print_document, print_json, print_text};

use crate::cli::{Color, Output};
use kops_agent_node::last_applied::superseded as superseded_means;
use kops_agent_node::run::Printer;

/// Prints everything that a node must have: the names of the resources as text, or `resources` as JSON.
pub fn print_state<T: Serialize>(state: &DesiredState, resources: &[T], output: Output) -> Result<u8> {
    match output {
        Output::Json => {
            #[derive(Serialize)]
            struct State<'a, T> {
                resources: &'a [T],
            }
            print_json(&State { resources })
        }
        Output::Text => {
            let mut text = String::new();
            for (id, _) in state.iter() {
                writeln!(text, "{id}")?;
            }
            print_text(&text)
        }
    }
}

/// The JSON of a plan. `plan` is `None` if only the summary is wanted.
#[derive(Serialize)]
struct Summarized<'a> {
    summary: Summary,
    #[serde(flatten)]
    plan: Option<&'a Plan>,
}

/// Prints a plan. If `is_brief` is true, prints only the summary.
pub fn print_plan(plan: &Plan, is_brief: bool, output: Output, color: Color) -> Result<u8> {
    let style = Style { colour: in_color(color), diffs: true };
    match output {
        Output::Json => {
            print_json(&Summarized { summary: plan.summary(), plan: (!is_brief).then_some(plan) })
        }
        Output::Text if is_brief => print_text(&(text::summary(plan) + "\n")),
        Output::Text => print_bytes(text::plan(plan, style).as_bytes()),
    }
}

pub fn print_report(report: &Report, output: Output) -> Result<u8> {
    match output {
        Output::Json => print_json(report),
        Output::Text => {
            let mut text: String = report.kept.iter().map(|kept| text::keeping(kept) + "\n").collect();
            let is_unmended = report.kept.iter().any(|kept| kept.keeping == Keeping::Unmended);
            match report.applied.is_empty() {
                true if is_unmended => {
                    text.push_str("Nothing to do now: the problems above cannot be repaired yet.\n");
                }
                true => text.push_str("Nothing to do: this node is as it should be.\n"),
                false => writeln!(text, "{}", text::applied(&report.summary))?,
            }
            print_text(&text)
        }
    }
}

pub fn print_node_config(node: &Value, output: Output) -> Result<u8> {
    match output {
        Output::Json => print_json(node),
        Output::Text => print_text(&kops_agent_spec::go_yaml::value_to_string(node)),
    }
}

/// Prints the origins of values.
pub fn print_explanation(lines: &[Line], output: Output) -> Result<u8> {
    if output == Output::Json {
        return print_json(&lines);
    }
    print_text(&explain::text(lines))
}

pub fn print_facts(facts: &Facts, output: Output) -> Result<u8> {
    match output {
        Output::Json => print_json(facts),
        Output::Text => print_document(&serde_yaml::to_string(facts)?),
    }
}

/// Prints the result of a run in the format that the flags ask for.
pub struct ResultPrinter {
    pub output: Output,
    pub color: Color,
}

impl Printer for ResultPrinter {
    fn report(&self, report: &Report) -> Result<()> {
        print_report(report, self.output)?;
        Ok(())
    }

    fn verification(&self, changed: &[Drift], plan: Option<&Plan>, superseded: Option<&str>) -> Result<()> {
        print_verification(changed, plan, superseded, self.output, self.color)?;
        Ok(())
    }
}

fn print_verification(
    changed: &[Drift],
    plan: Option<&Plan>,
    superseded: Option<&str>,
    output: Output,
    color: Color,
) -> Result<u8> {
    if output == Output::Json {
        #[derive(Serialize)]
        struct Verification<'a> {
            changed: &'a [Drift],
            plan: Option<Summarized<'a>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            superseded: Option<&'a str>,
        }
        let plan = plan.map(|plan| Summarized { summary: plan.summary(), plan: Some(plan) });
        return print_json(&Verification { changed, plan, superseded });
    }
    let mut text = String::new();
    if let Some(by) = superseded {
        writeln!(text, "Superseded: {}.", superseded_means(by))?;
    }
    if changed.is_empty() {
        text.push_str("Nothing has changed since the last run.\n");
    } else {
        text.push_str("Changed since the last run:\n");
        changed
            .iter()
            .try_for_each(|drift| writeln!(text, "  {}: {}", drift.resource, drift.how.join(", ")))?;
    }
    let mut text = plain_lines(&text);
    if let Some(plan) = plan {
        text.push_str(&text::plan(plan, Style { colour: in_color(color), diffs: true }));
    }
    print_bytes(text.as_bytes())
}

fn in_color(color: Color) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => std::io::stdout().is_terminal() && takes_colour(|name| std::env::var_os(name)),
    }
}
