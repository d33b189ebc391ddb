//! `kops-agent addons remove`: deletes the objects of an add-on, or lists them.

use std::fmt::Write as _;

use anyhow::Result;

use kops_agent_controller::addons::Scene;
use kops_agent_controller::addons::remove::{Removal, remove};
use kops_agent_process::exit;
use kops_agent_process::output::one_line;

use crate::cli::{AddonsRemoveArgs, Output};
use crate::output;

/// Prints the deleted objects, or without `--yes` the objects to delete. Returns exit code 1 if there are problems.
pub(super) async fn run(args: &AddonsRemoveArgs) -> Result<u8> {
    let scene = Scene::open(&args.channels.options()?, None).await?;
    let removal = remove(&scene, &args.name, args.yes).await?;
    match args.output {
        Output::Json => output::print_json(&removal)?,
        Output::Text => output::print_text(&text(&removal))?,
    };
    Ok(if removal.problems.is_empty() { exit::CONVERGED } else { exit::FAILED })
}

fn text(removal: &Removal) -> String {
    let mut text = String::new();
    for (sign, lines) in [("-", &removal.deleted), ("kept", &removal.kept), ("!", &removal.problems)] {
        for line in lines {
            let _ = writeln!(text, "{sign} {}", one_line(line, usize::MAX));
        }
    }
    if !removal.is_done {
        text.push_str("Nothing was changed. To delete these objects, add --yes.\n");
    }
    text
}
