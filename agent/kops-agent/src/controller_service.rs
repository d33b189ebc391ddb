//! `--controller`: reads of the state store what control-plane mode is told as a service of this machine.

use anyhow::{Context, Result};
use kops_agent_plan::derive;
use kops_agent_plan::desired::ControllerService;
use kops_agent_plan::spec::KopsControllerOptions;

use crate::exit::WrongConfiguration;
use crate::store::Store;

/// kops-controller's configuration as kOps wrote it below `base`, the cluster's folder, and this program.
///
/// # Errors
/// If the store cannot be read, or has no such configuration.
pub async fn read(store: &Store, base: &str) -> Result<ControllerService> {
    let channel = text(store, &format!("{base}/addons/bootstrap-channel.yaml")).await?;
    let manifests = derive::addon_manifests(&channel).map_err(WrongConfiguration)?;
    let manifest = derive::kops_controller_manifest(&manifests).ok_or_else(|| {
        WrongConfiguration(format!(
            "{base}/addons/bootstrap-channel.yaml names no addon kops-controller.addons.k8s.io, whose configuration \
             --controller is for; run `kops update cluster --yes`, or leave --controller out"
        ))
    })?;
    let url = format!("{base}/addons/{manifest}");
    let options = derive::kops_controller_config(&text(store, &url).await?).map_err(|problem| {
        WrongConfiguration(format!("cannot find kops-controller's configuration in {url}: {problem}"))
    })?;
    KopsControllerOptions::parse(options.as_bytes(), &url)?;
    let program =
        std::env::current_exe().context("finding the path of this program for the controller's unit")?;
    Ok(ControllerService { options, program: program.display().to_string() })
}

async fn text(store: &Store, url: &str) -> Result<String> {
    let bytes = store.read(url).await.with_context(|| format!("reading {url} for --controller"))?;
    Ok(String::from_utf8(bytes).map_err(|_| WrongConfiguration(format!("{url} is not text")))?)
}
