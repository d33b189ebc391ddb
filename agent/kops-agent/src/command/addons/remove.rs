//! `kops-agent addons remove`: deletes the objects of an add-on, or lists them.

use anyhow::Result;

use kops_agent_controller::addons::Scene;
use kops_agent_controller::addons::remove::remove;
use kops_agent_process::exit;

use crate::cli::{AddonsRemoveArgs, Output};
use crate::output;

/// Prints the deleted objects, or without `--yes` the objects to delete. Returns exit code 1 if there are problems.
pub(super) async fn run(args: &AddonsRemoveArgs) -> Result<u8> {
    let scene = Scene::open(&args.channels.options()?, None).await?;
    let removal = remove(&scene, &args.name, args.yes).await?;
    match args.output {
        Output::Json => output::print_json(&removal)?,
        Output::Text if removal.is_done => output::print_text(&removal.text())?,
        Output::Text => output::print_text(
            &(removal.text() + "Nothing was changed. To delete these objects, add --yes.\n"),
        )?,
    };
    Ok(if removal.problems.is_empty() { exit::CONVERGED } else { exit::FAILED })
}
