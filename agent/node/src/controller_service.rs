//! `--controller`: reads kops-controller's configuration from the state store, for control-plane mode as a service of
//! this machine.

use std::path::Path;

use anyhow::{Context, Result};
use kops_agent_cluster::addons::bootstrap_channel;
use kops_agent_cluster::takeover;
use kops_agent_plan::derive;
use kops_agent_plan::desired::ControllerService;
use kops_agent_spec::KopsControllerOptions;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_store::Store;

use super::own_services::CONTROLLER;

/// Reads kops-controller's configuration, which kOps wrote into the store. `base` is the cluster's folder.
pub async fn read(store: &Store, base: &str, program: &Path) -> Result<ControllerService> {
    let channel = bootstrap_channel(base);
    let manifests = derive::addon_manifests(&text(store, &channel).await?)?;
    let manifest = derive::kops_controller_manifest(&manifests).ok_or_else(|| {
        Failure::new(Kind::ControlPlaneSettings, format!(
            "{channel} has no addon kops-controller.addons.k8s.io, so the configuration for --controller is \
             missing; run `kops update cluster --yes`, or remove the service with {}=false",
            CONTROLLER.variable
        ))
    })?;
    let url = format!("{base}/addons/{manifest}");
    let options = derive::kops_controller_config(&text(store, &url).await?).map_err(|problem| {
        Failure::new(
            Kind::ControlPlaneSettings,
            format!("cannot find kops-controller's configuration in {url}: {problem}"),
        )
    })?;
    let parsed = KopsControllerOptions::parse(options.as_bytes(), &url)?;
    if let Some(why) = takeover::left_to_upstream(&parsed) {
        log::warn!(
            "the service of --controller starts but does nothing, and leaves the Lease and port 3988 to \
             kOps' kops-controller: {why}"
        );
    }
    let serves_machines = takeover::serves_machines(&parsed);
    Ok(ControllerService { options, program: program.display().to_string(), serves_machines })
}

async fn text(store: &Store, url: &str) -> Result<String> {
    let bytes = store.read(url).await.with_context(|| format!("reading {url} for --controller"))?;
    Ok(String::from_utf8(bytes)
        .map_err(|_| Failure::new(Kind::FileUnreadable, format!("{url} is not text")))?)
}
