//! `--addons`: the settings of the service that replaces kOps' channels pod, or protokube's channels, on this machine.

use std::path::Path;

use anyhow::Result;
use kops_agent_cluster::addons::AddonSettings;
use kops_agent_plan::desired::AddonsService;
use kops_agent_plan::resolve::{NodeConfig, StoredPod};
use kops_agent_spec::failure::{Failure, Kind};

use super::own_services::ADDONS;

/// Reads the settings from the manifest of the channels pod in the state store. If protokube applies add-ons, reads the
/// settings from the list `channels` in the node's configuration. Fails if there are no channels to apply.
pub fn read(node: &NodeConfig, program: &Path) -> Result<AddonsService> {
    let (source, settings) = match node.release().protokube_applies_addons() {
        true => {
            let settings = AddonSettings::of_protokube(&node.config.channels, &node.node_name);
            ("the list `channels` of the node's configuration".to_owned(), settings)
        }
        false => {
            let containers = node.kops_channels.as_ref().map(StoredPod::containers).unwrap_or_default();
            let settings = AddonSettings::of_pod(containers, &node.node_name);
            (format!("the pod {}", node.config.channels_manifest), settings)
        }
    };
    let settings = settings.map_err(|problem| {
        Failure::new(Kind::ControlPlaneSettings, format!(
            "{source} {problem}, so {} cannot tell which add-ons to apply; run `kops update cluster --yes`, or leave add-ons to kOps with \
             {}=false",
            ADDONS.flag, ADDONS.variable
        ))
    })?;
    Ok(AddonsService { settings, program: program.display().to_string() })
}
