//! `--addons`: what kOps' channels pod would do on this machine, for the service in its place.

use anyhow::{Context, Result};
use kops_agent_plan::addons::AddonSettings;
use kops_agent_plan::desired::AddonsService;
use kops_agent_plan::resolve::{NodeConfig, StoredPod};
use kops_agent_process::exit::WrongConfiguration;
use kops_agent_process::program;

use super::own_services::ADDONS;

/// What the pod of the state store says, and this program.
///
/// # Errors
/// If the pod is not one that applies channels, or protokube applies them on this machine.
pub fn read(node: &NodeConfig) -> Result<AddonsService> {
    if node.release().protokube_applies_addons() {
        return Err(WrongConfiguration(format!(
            "kOps {} has protokube apply add-ons, and kops-agent cannot take its place yet; leave add-ons to protokube \
             with {}=false, or upgrade the cluster to kOps 1.36 first",
            node.release(),
            ADDONS.variable
        ))
        .into());
    }
    let containers = node.kops_channels.as_ref().map(StoredPod::containers).unwrap_or_default();
    let settings = AddonSettings::of_pod(containers, &node.node_name).map_err(|problem| {
        WrongConfiguration(format!(
            "the pod {} {problem}, so what {} is to apply is not known; run `kops update cluster --yes`, or leave \
             add-ons to the pod with {}=false",
            node.config.channels_manifest, ADDONS.flag, ADDONS.variable
        ))
    })?;
    let program = program::path().context("finding the path of this program for the unit of add-ons")?;
    Ok(AddonsService { settings, program: program.display().to_string() })
}
