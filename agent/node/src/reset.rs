//! Plans a reset, which turns a node back into the machine that it was before the agent made it a node.

use anyhow::Result;
use kops_agent_host::{Host, Reset};

use super::{environment, install_unit};

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

/// The files that `OWN_UNITS` read and run. Ignition's boot script contains the boot config, and keys of a store.
const OWN_FILES: [&str; 2] = [environment::OF_NODEUP, "/opt/kops/boot"];

/// Files from the operator or the user-data that make the machine a node of its cluster: the boot config, at each of its
/// places, and the variables of the packages' units. Without `--purge`, these files stay.
const GIVEN: [&str; 3] =
    ["/opt/kops/conf/kube_env.yaml", "/var/lib/toolbox/kops/conf/kube_env.yaml", environment::OF_PACKAGE];

const METRICS: &str = "/var/lib/prometheus/node-exporter/kops-agent.prom";

pub struct ResetPlan {
    pub reset: Reset,
    /// Files that stay, although they make the machine a node of its cluster.
    pub left: Vec<String>,
}

impl ResetPlan {
    /// Plans a reset of this machine. If `purges` is true, the reset also removes the files from the operator.
    pub fn new(host: &Host, purges: bool) -> Result<ResetPlan> {
        let given: &[&str] = if purges { &GIVEN } else { &[] };
        let mut reset = host.plan_reset(&OWN_UNITS, &[&OWN_FILES, given].concat(), &OF_PACKAGES)?;
        let left = if purges { Vec::new() } else { host.existing_files(&GIVEN)? };
        if host.is_published(METRICS)? {
            reset.published.push(METRICS.to_owned());
        }
        Ok(ResetPlan { reset, left })
    }
}
