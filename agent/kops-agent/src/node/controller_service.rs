//! `--controller`: whether control-plane mode is to be a service of this machine, and what the state store has for it.

use std::path::Path;

use anyhow::{Context, Result};
use kops_agent_plan::addons::bootstrap_channel;
use kops_agent_plan::derive;
use kops_agent_plan::desired::{CONTROLLER_UNIT, ControllerService};
use kops_agent_plan::takeover;
use kops_agent_process::exit::WrongConfiguration;
use kops_agent_process::program;
use kops_agent_spec::KopsControllerOptions;
use kops_agent_store::Store;

use super::environment::Environment;
use super::machine;

/// `true` has a machine run the service as `--controller` does, and `false` takes it away. What converges at boot is called
/// as kOps wrote it down.
pub const VARIABLE: &str = "KOPS_AGENT_CONTROLLER";

/// Whether the machine below `root` is to have the service, by the flag or by [`VARIABLE`]. Where neither says so the machine has it as before: a run
/// from a shell does not know what another was told.
///
/// # Errors
/// If the variable is neither `true` nor `false`, or what earlier runs left cannot be read.
pub fn is_wanted(is_asked_for: bool, root: &Path, environment: &Environment) -> Result<bool> {
    if is_asked_for {
        return Ok(true);
    }
    if let Some(is_wanted) = is_true(environment.get(VARIABLE).as_deref())? {
        return Ok(is_wanted);
    }
    let is_there = machine::has_record(root) && machine::open(root)?.has_left_unit(CONTROLLER_UNIT)?;
    if is_there {
        log::info!("{CONTROLLER_UNIT} stays, since neither --controller nor {VARIABLE}=false is said");
    }
    Ok(is_there)
}

fn is_true(value: Option<&str>) -> Result<Option<bool>, WrongConfiguration> {
    match value {
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some("") | None => Ok(None),
        Some(value) => Err(WrongConfiguration(format!(
            "{VARIABLE} is {value:?}: set it to true to run control-plane mode as a service of this machine, or to false"
        ))),
    }
}

/// kops-controller's configuration as kOps wrote it below `base`, the cluster's folder, and this program.
///
/// # Errors
/// If the store cannot be read, or has no such configuration.
pub async fn read(store: &Store, base: &str) -> Result<ControllerService> {
    let channel = bootstrap_channel(base);
    let manifests = derive::addon_manifests(&text(store, &channel).await?)?;
    let manifest = derive::kops_controller_manifest(&manifests).ok_or_else(|| {
        WrongConfiguration(format!(
            "{channel} names no addon kops-controller.addons.k8s.io, whose configuration \
             --controller is for; run `kops update cluster --yes`, or take the service away with {VARIABLE}=false"
        ))
    })?;
    let url = format!("{base}/addons/{manifest}");
    let options = derive::kops_controller_config(&text(store, &url).await?).map_err(|problem| {
        WrongConfiguration(format!("cannot find kops-controller's configuration in {url}: {problem}"))
    })?;
    let parsed = KopsControllerOptions::parse(options.as_bytes(), &url)?;
    if let Some(why) = takeover::left_to_upstream(&parsed) {
        log::warn!(
            "--controller: {why}; its service starts, leaves the Lease and port 3988 to kOps' kops-controller, and does nothing"
        );
    }
    let program = program::path().context("finding the path of this program for the controller's unit")?;
    let serves_machines = takeover::serves_machines(&parsed);
    Ok(ControllerService { options, program: program.display().to_string(), serves_machines })
}

async fn text(store: &Store, url: &str) -> Result<String> {
    let bytes = store.read(url).await.with_context(|| format!("reading {url} for --controller"))?;
    Ok(String::from_utf8(bytes).map_err(|_| WrongConfiguration(format!("{url} is not text")))?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_variable_says_yes_or_no() {
        assert_eq!(is_true(Some("true")).unwrap(), Some(true));
        assert_eq!(is_true(Some("false")).unwrap(), Some(false));
        assert_eq!([is_true(Some("")).unwrap(), is_true(None).unwrap()], [None, None]);
        // What means yes is not to be taken for no.
        assert!(is_true(Some("1")).unwrap_err().0.contains("KOPS_AGENT_CONTROLLER is \"1\""));
    }
}
