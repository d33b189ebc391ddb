//! Whether this program installs its timers on this machine. A package brings the timers; a boot script brings only the
//! program.

use std::path::Path;

use anyhow::Result;
use kops_agent_host::{Downloads, Progress};
use kops_agent_net::LocationClient;
use kops_agent_plan::desired::{PACKAGED_PROGRAM, Upkeep};
use kops_agent_process::program;
use kops_agent_spec::failure::Failure;

use super::environment::Environment;
use super::materials::Materials;
use super::own_services::yes_or_no;
use super::{apply, machine};
use crate::redaction::error_text;

/// The environment variable for the timers. With `false`, a machine whose boot script installed this program gets no
/// timers, no link in `PATH` and no completions.
pub const VARIABLE: &str = "KOPS_AGENT_TIMERS";

/// The timers of the machine below `root`, and the link to this program in `PATH`. `conf` is the machine's boot config.
/// `None` if the machine gets no timers.
pub fn of_machine(root: &Path, conf: &Path, environment: &Environment) -> Result<Option<Upkeep>, Failure> {
    let is_wanted = yes_or_no(VARIABLE, "timers", environment.get(VARIABLE).as_deref())?;
    let is_packaged = root.join(PACKAGED_PROGRAM.trim_start_matches('/')).exists();
    if is_wanted == Some(false) || is_packaged {
        return Ok(None);
    }
    Ok(program::path().ok().and_then(|program| beside(&program, conf)))
}

/// Installs and starts the timers before the first run on a machine that is not a node yet, so that the node's metrics
/// include a failed first run. If the timers cannot be installed, the run continues.
pub async fn place_before_first_run(root: &Path, conf: &Path, waits_for_lock: bool, progress: &dyn Progress) {
    if !root.is_dir() || machine::has_record(root) {
        return;
    }
    // The run itself reports a wrong value of `VARIABLE`.
    let Ok(Some(upkeep)) = of_machine(root, conf, &Environment::of_machine(root)) else { return };
    if let Err(error) = Box::pin(place(root, &upkeep, waits_for_lock, progress)).await {
        log::warn!(
            "cannot place the timers of kops-agent before the first run, so this machine has no metrics if \
             the run fails: {}",
            error_text(&error)
        );
    }
}

async fn place(root: &Path, upkeep: &Upkeep, waits_for_lock: bool, progress: &dyn Progress) -> Result<()> {
    let host = machine::open(root)?;
    let _lock = machine::lock(waits_for_lock, &host).await?;
    // Only a machine that is not yet a node gets timers here. On a node that nodeup made, the first run may get no
    // configuration from kops-controller. This is not a failure, so the metrics need not include that run.
    if !host.is_no_node_yet()? {
        return Ok(());
    }
    let downloads = Downloads::new(LocationClient::new()?);
    apply::early(&host, &upkeep.timers(), &Materials::default(), &downloads, progress).await?;
    Ok(())
}

/// The timers and the link in `PATH`, if a boot script installed this program. The boot script writes the program into
/// a folder `bin` and the boot config into the folder `conf` beside it (pkg/model/resources/nodeup.go of kOps,
/// `packaging/cloud-init/kops-agent.sh`). `None` for a program elsewhere.
fn beside(program: &Path, conf: &Path) -> Option<Upkeep> {
    let (bin, conf_folder) = (program.parent()?, conf.parent()?);
    let is_pair = bin.file_name()? == "bin" && conf_folder.file_name()? == "conf";
    (is_pair && conf.is_absolute() && bin.parent()? == conf_folder.parent()?)
        .then(|| Some(Upkeep { program: program.to_str()?.to_owned(), conf: conf.to_str()?.to_owned() }))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_beside_its_boot_config_is_a_boot_scripts() {
        let gets = |program: &str, conf: &str| beside(Path::new(program), Path::new(conf)).is_some();
        for kops in ["/opt/kops", "/var/lib/toolbox/kops"] {
            for name in ["nodeup", "kops-agent"] {
                assert!(gets(&format!("{kops}/bin/{name}"), &format!("{kops}/conf/kube_env.yaml")));
            }
        }
        for (program, conf) in [
            ("/usr/bin/kops-agent", "/opt/kops/conf/kube_env.yaml"),
            ("/work/target/debug/kops-agent", "/work/conf/kube_env.yaml"),
            ("/opt/kops/bin/nodeup", "/root/kube_env.yaml"),
            ("/opt/kops/bin/nodeup", "conf/kube_env.yaml"),
        ] {
            assert!(!gets(program, conf), "{program} {conf}");
        }
    }
}
