//! `kops-agent addons status`: prints the state of each add-on.

use anyhow::Result;

use kops_agent_cluster::addons::Row;
use kops_agent_controller::addons::{Scene, status};
use kops_agent_process::exit;

use crate::cli::{AddonsArgs, Output};
use crate::output;

/// Prints the states of the add-ons. Returns exit code 4 if an add-on is due or wrong.
pub(super) async fn run(args: &AddonsArgs) -> Result<u8> {
    let rows = status::rows(&Scene::open(&args.channels.options()?, args.name.as_deref()).await?).await?;
    match args.output {
        Output::Json => output::print_json(&rows)?,
        Output::Text => output::print_text(&Row::table(&rows))?,
    };
    Ok(if rows.iter().all(Row::is_healthy) { exit::CONVERGED } else { exit::DIFFERENT })
}
