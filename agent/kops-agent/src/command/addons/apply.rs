//! `kops-agent addons apply`: applies due add-ons, and prints what it did.

use anyhow::Result;

use kops_agent_cluster::addons::{Recreation, Report};
use kops_agent_controller::addons::{Scene, apply, recreate};
use kops_agent_process::exit;

use crate::cli::{AddonsApplyArgs, Output};
use crate::output;

/// Applies the due add-ons. Returns exit code 1 if an add-on failed, or if a channel's entry for it was skipped.
pub(super) async fn run(args: &AddonsApplyArgs) -> Result<u8> {
    let scene = Scene::open(&args.addons.channels.options()?, args.addons.name.as_deref()).await?;
    scene.warn_of_left_out();
    if !args.recreate.is_empty() {
        let recreations = Recreation::text_of(&recreate::delete(&scene, &args.recreate, args.yes).await?);
        if !args.yes {
            return output::print_text(&(recreations + "Nothing was changed. To do it, add --yes.\n"));
        }
        log::info!("{}", recreations.trim_end());
    }
    let outcome = apply::apply(&scene, args.reapply || args.yes, args.retries).await?;
    let reports: Vec<&Report> = outcome.done.iter().chain(&outcome.failed).collect();
    match args.addons.output {
        Output::Json => output::print_json(&reports)?,
        Output::Text => output::print_text(&Report::text_of(&reports))?,
    };
    let is_failed = !outcome.failed.is_empty() || scene.left_out().next().is_some();
    Ok(if is_failed { exit::FAILED } else { exit::CONVERGED })
}
