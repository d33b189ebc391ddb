//! Plans and carries out a reset, which turns a node back into the machine that it was before the agent made it a node.

use std::path::Path;

use anyhow::Result;
use kops_agent_host::{Host, Lock, Reset, Resetting};
use kops_agent_plan::desired::BOOT_CONFIG;
use kops_agent_source::BOOT_CONFIG_OF_TOOLBOX;

use super::{condition, environment, install_unit};

/// Units that packages install (see `units/`). A timer comes before the service that it starts. The files of these units
/// belong to the package and stay, but the units must not make the machine a node again.
const OF_PACKAGES: [&str; 7] = [
    "kops-agent-verify.timer",
    "kops-agent-verify.service",
    "kops-agent-metrics.timer",
    "kops-agent-metrics.service",
    "kops-agent.service",
    "kops-agent-controller.service",
    "kops-agent-addons.service",
];

/// Units that make a machine a node at boot and belong to no package: the boot script's unit, and the unit that
/// Ignition writes from `packaging/cloud-init/user-data --format ignition`.
const OWN_UNITS: [&str; 2] = [install_unit::UNIT, "kops-agent-boot.service"];

/// The files that `OWN_UNITS` read and run. The second file is Ignition's boot script. This script contains the boot
/// config, and keys of a store.
const OWN_FILES: [&str; 2] = [environment::OF_NODEUP, "/opt/kops/boot"];

/// Files from the operator or the user-data that make the machine a node of its cluster: the boot config, at each of its
/// places, and the variables of the packages' units. Without `--purge`, these files stay.
const GIVEN: [&str; 3] = [BOOT_CONFIG, BOOT_CONFIG_OF_TOOLBOX, environment::OF_PACKAGE];

const METRICS: &str = "/var/lib/prometheus/node-exporter/kops-agent.prom";

pub struct ResetPlan {
    pub reset: Reset,
    /// Files that stay, although they make the machine a node of its cluster.
    left: Vec<String>,
}

impl ResetPlan {
    /// Plans a reset of this machine. If `purges` is true, the reset also removes the boot config and the variables of the packages' units.
    pub fn new(host: &Host, purges: bool) -> Result<ResetPlan> {
        let given: &[&str] = if purges { &GIVEN } else { &[] };
        let mut reset = host.plan_reset(&OWN_UNITS, &[&OWN_FILES, given].concat(), &OF_PACKAGES)?;
        let left = if purges { Vec::new() } else { host.existing_files(&GIVEN)? };
        if host.is_published(METRICS)? {
            reset.published.push(METRICS.to_owned());
        }
        Ok(ResetPlan { reset, left })
    }

    /// Lists everything that the reset removes, empties and leaves on the machine below `root`.
    pub fn text(&self, root: &Path) -> String {
        let ResetPlan { reset, left } = self;
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
        list("These rules of the pod network are removed", reset.pod_network.rules.clone());
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
            left.clone(),
        );
        if reset.containers {
            lines.push("All pods of this machine are stopped.".to_owned());
        }
        lines.push(String::new());
        lines.join("\n")
    }

    /// Resets the machine below `root`. Returns the lock, which keeps other runs out until the reset removes the folder of the
    /// lock.
    pub async fn carry_out(&self, host: &Host, root: &Path) -> Result<Lock> {
        let lock = host.lock()?;
        // The units are stopped first, because a running unit could report the agent's Node conditions again.
        host.stop_units(&of_the_agent(&self.reset), &Tell)?;
        Box::pin(condition::withdraw_warnings(root)).await;
        host.reset(&self.reset, &Tell)?;
        Ok(lock)
    }
}

/// The units that run kops-agent, among the units that a reset stops.
fn of_the_agent(reset: &Reset) -> Vec<String> {
    reset.units.iter().filter(|unit| unit.starts_with("kops-")).cloned().collect()
}

/// A folder that a reset empties. If the folder is a link, the reset empties its target, so the text names the
/// target, too.
fn with_what_it_leads_to(folder: &str, root: &Path) -> String {
    match std::fs::read_link(root.join(folder.trim_start_matches('/'))) {
        Ok(target) => format!("{folder}, which is a link to {}", target.display()),
        Err(_) => folder.to_owned(),
    }
}

/// Logs each step of a reset.
struct Tell;

impl Resetting for Tell {
    fn doing(&self, what: &str) {
        log::debug!("{what}");
    }
}
