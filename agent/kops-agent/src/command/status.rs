//! `kops-agent status`: shows the status of this node and what to do about it, as text, as JSON, or for node_exporter's
//! textfile collector.

use anyhow::Result;
use kops_agent_host::Host;
use kops_agent_plan::timeline::{self, Timelines};
use kops_agent_process::exit;
use kops_agent_spec::failure;

use crate::cli::{StatusArgs, StatusOutput};
use crate::output;
use kops_agent_node::{machine, metrics, status};

/// Prints the status; the exit code says whether the node is converged and its last run succeeded.
pub(super) fn run(args: &StatusArgs) -> Result<u8> {
    machine::must_exist(&args.root)?;
    let host: Host = machine::open(&args.root)?;
    if args.timeline {
        return print_timeline(&host.timelines()?, args.output);
    }
    if args.write.is_some() && args.output != StatusOutput::Prometheus {
        return Err(wrong_usage("--write is for metrics: give --output prometheus as well"));
    }
    let now = host.status()?;
    match args.output {
        StatusOutput::Json => output::print_json(&now)?,
        StatusOutput::Text => output::print_text(&status::text(&now))?,
        StatusOutput::Prometheus => {
            let metrics = metrics::of_node(&host, &now);
            match &args.write {
                Some(path) => host.publish(path, metrics.as_bytes()).map(|()| exit::CONVERGED)?,
                None => output::print_document(&metrics)?,
            }
        }
    };
    let is_healthy = now.converged && now.failure.is_none() && now.rolled_back.is_none();
    Ok(if is_healthy { exit::CONVERGED } else { exit::DIFFERENT })
}

fn print_timeline(timelines: &Timelines, output: StatusOutput) -> Result<u8> {
    match output {
        StatusOutput::Json => output::print_json(timelines),
        StatusOutput::Text if timelines.runs.is_empty() => output::print_text("no run has finished yet\n"),
        StatusOutput::Text => output::print_text(&timeline::table(timelines)),
        StatusOutput::Prometheus => {
            Err(wrong_usage("--timeline has no form for Prometheus; give --output text or json"))
        }
    }
}

fn wrong_usage(problem: &str) -> anyhow::Error {
    failure::Failure::new(failure::Kind::WrongUsage, problem).into()
}
