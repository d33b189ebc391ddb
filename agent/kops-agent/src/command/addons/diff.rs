//! `kops-agent addons diff`: prints the changes that an apply would make.

use anyhow::Result;

use kops_agent_cluster::addons::Difference;
use kops_agent_controller::addons::Scene;
use kops_agent_controller::addons::diff::differences;
use kops_agent_process::exit;

use crate::cli::{AddonsDiffArgs, Output};
use crate::output;

/// Prints the changes that an apply of the add-ons would make. Returns exit code 1 if some changes are unknown, or 4
/// with `--exit-code` if there are changes.
pub(super) async fn run(args: &AddonsDiffArgs) -> Result<u8> {
    let AddonsDiffArgs { addons, exit_code } = args;
    let scene = Scene::open(&addons.channels.options()?, addons.name.as_deref()).await?;
    let differences = differences(&scene).await?;
    match addons.output {
        Output::Json => output::print_json(&differences)?,
        Output::Text => output::print_text(&Difference::text_of(&differences))?,
    };
    let is_told = differences.iter().all(|one| one.problems.is_empty());
    let is_none = differences.iter().all(Difference::is_none);
    Ok(match (is_told, is_none || !exit_code) {
        (false, _) => exit::FAILED,
        (true, true) => exit::CONVERGED,
        (true, false) => exit::DIFFERENT,
    })
}
