//! `kops-agent addons diff`: prints the changes that an apply would make.

use std::fmt::Write as _;

use anyhow::Result;

use kops_agent_controller::addons::Scene;
use kops_agent_controller::addons::diff::{Changed, Difference, differences};
use kops_agent_process::exit;
use kops_agent_process::output::one_line;

use crate::cli::{AddonsDiffArgs, Output};
use crate::output;

/// Prints the differences. Returns exit code 1 if a part could not be compared, or 4 with `--exit-code` if something
/// differs.
pub(super) async fn run(args: &AddonsDiffArgs) -> Result<u8> {
    let AddonsDiffArgs { addons, exit_code } = args;
    let scene = Scene::open(&addons.channels.options()?, addons.name.as_deref()).await?;
    let differences = differences(&scene).await?;
    match addons.output {
        Output::Json => output::print_json(&differences)?,
        Output::Text => output::print_text(&text(&differences))?,
    };
    let is_told = differences.iter().all(|one| one.problems.is_empty());
    let is_none = differences.iter().all(Difference::is_none);
    Ok(match (is_told, is_none || !exit_code) {
        (false, _) => exit::FAILED,
        (true, true) => exit::CONVERGED,
        (true, false) => exit::DIFFERENT,
    })
}

fn text(differences: &[Difference]) -> String {
    let mut text = String::new();
    for difference in differences.iter().filter(|one| !one.is_none() || !one.problems.is_empty()) {
        let _ = writeln!(text, "add-on {}", one_line(&difference.name, usize::MAX));
        for Changed { object, diff } in &difference.changed {
            let _ = writeln!(text, "  ~ {}", one_line(object, usize::MAX));
            for line in diff.lines() {
                let _ = writeln!(text, "      {}", one_line(line, usize::MAX));
            }
        }
        for object in &difference.authority {
            let _ = writeln!(text, "  + {object}");
        }
        for object in &difference.pruned {
            let _ = writeln!(text, "  - {}", one_line(object, usize::MAX));
        }
        for problem in &difference.problems {
            let _ = writeln!(text, "  ! {}", one_line(problem, usize::MAX));
        }
    }
    if text.is_empty() {
        text.push_str("Nothing would change.\n");
    }
    text
}
