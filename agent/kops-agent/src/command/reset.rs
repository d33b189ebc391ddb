//! `kops-agent reset`: lists what it removes, asks, and turns the node back into the machine that it was.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use anyhow::{Context, Result};
use kops_agent_host::{Reset, Resetting};

use crate::cli::ResetArgs;
use crate::output;
use kops_agent_node::reset::ResetPlan;
use kops_agent_node::{condition, last_server, machine};
use kops_agent_process::exit;
use kops_agent_spec::failure::{Failure, Kind};

pub(super) async fn run(args: &ResetArgs) -> Result<u8> {
    if !args.root.is_dir() {
        let problem = format!("{} is not a directory: there is nothing to reset", args.root.display());
        return Err(Failure::new(Kind::NoMachine, problem).into());
    }
    machine::must_exist(&args.root)?;
    let host = machine::open(&args.root)?;
    let ResetPlan { reset, left } = ResetPlan::new(&host, args.purge)?;
    output::print_text(&text(&reset, left, &args.root))?;
    if !args.allow_no_server {
        Box::pin(last_server::stays_after_reset(&args.root, &reset.units)).await?;
    }
    if !args.yes && !is_confirmed()? {
        return Err(Failure::new(Kind::Stopped, "nothing was reset").into());
    }
    // No other run may begin between these actions.
    let _lock = host.lock()?;
    // Only stopped units cannot report the early warnings again.
    host.stop_units(&of_the_agent(&reset), &Tell)?;
    Box::pin(condition::withdraw_warnings(&args.root)).await;
    host.reset(&reset, &Tell)?;
    output::print_text("This machine is no longer a node.\n")?;
    Ok(exit::CONVERGED)
}

/// The units of a reset that run kops-agent.
fn of_the_agent(reset: &Reset) -> Vec<String> {
    reset.units.iter().filter(|unit| unit.starts_with("kops-")).cloned().collect()
}

fn text(reset: &Reset, left: Vec<String>, root: &Path) -> String {
    let mut lines = Vec::new();
    let mut list = |what: &str, names: Vec<String>| {
        if !names.is_empty() {
            lines.push(format!("{what}:"));
            lines.extend(names.iter().map(|name| format!("  {name}")));
        }
    };
    list("These units are stopped and disabled", reset.units.clone());
    list("These are unmounted", reset.mounts.clone());
    list("These network interfaces of pods are removed", reset.pod_network.interfaces.clone());
    list("These rules of the network of pods are removed", reset.pod_network.rules.clone());
    list(
        "These could not be read. Remains of pods there stay until this machine restarts",
        reset.pod_network.unknown.clone(),
    );
    list(
        "These are removed, keys overwritten first",
        reset.removed.iter().map(ToString::to_string).collect(),
    );
    list("This file of metrics for node_exporter is removed", reset.published.clone());
    list(
        "These folders are removed with their content",
        reset.folders.iter().map(|folder| with_what_it_leads_to(folder, root)).collect(),
    );
    list(
        "These folders stay: the spec puts data of kubelet or containerd there, but other programs may have files there too. Before you \
         make an image of this machine, remove the files that pods left: they may contain tokens",
        reset.shared.iter().cloned().collect(),
    );
    list(
        "Other programs mounted these: they are emptied and stay mounted. Files below the mount points are not removed, unless you \
         unmount them first",
        reset.emptied.iter().cloned().collect(),
    );
    list(
        "These stay, because they were there before kops-agent",
        reset.kept.iter().map(ToString::to_string).collect(),
    );
    list(
        "These stay, and may contain keys. With them this machine, and each machine made from its image, becomes a node of its cluster \
         again. --purge overwrites and removes them",
        left,
    );
    if reset.containers {
        lines.push("All pods of this machine are stopped.".to_owned());
    }
    lines.push(String::new());
    lines.join("\n")
}

/// A folder that a reset empties. If the folder is a link, the reset empties its target, so the text names the
/// target, too.
fn with_what_it_leads_to(folder: &str, root: &Path) -> String {
    match std::fs::read_link(root.join(folder.trim_start_matches('/'))) {
        Ok(target) => format!("{folder}, which is a link to {}", target.display()),
        Err(_) => folder.to_owned(),
    }
}

fn is_confirmed() -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(
            Failure::new(Kind::WrongUsage, "there is no terminal to confirm it on; give --yes").into()
        );
    }
    output::print_text("Type \"reset\" to do it: ")?;
    std::io::stdout().flush().context("asking")?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("reading the answer")?;
    Ok(answer.trim() == "reset")
}

/// Logs each step of a reset.
struct Tell;

impl Resetting for Tell {
    fn doing(&self, what: &str) {
        log::debug!("{what}");
    }
}
