//! `kops-agent addons apply`: applies due add-ons, and prints what it did.

use std::fmt::Write as _;

use anyhow::Result;

use kops_agent_controller::addons::recreate::{self, Recreation, RecreationState};
use kops_agent_controller::addons::{Report, Scene, apply};
use kops_agent_process::exit;
use kops_agent_process::output::one_line;

use crate::cli::{AddonsApplyArgs, Output};
use crate::output;

/// Applies the due add-ons. Returns exit code 1 if an add-on failed, or if a channel's entry for it was skipped.
pub(super) async fn run(args: &AddonsApplyArgs) -> Result<u8> {
    let scene = Scene::open(&args.addons.channels.options()?, args.addons.name.as_deref()).await?;
    scene.warn_of_left_out();
    if !args.recreate.is_empty() {
        let recreations = text_of_recreations(&recreate::delete(&scene, &args.recreate, args.yes).await?);
        if !args.yes {
            return output::print_text(&(recreations + "Nothing was changed. To do it, add --yes.\n"));
        }
        log::info!("{}", recreations.trim_end());
    }
    let outcome = apply::apply(&scene, args.reapply || args.yes, args.retries).await?;
    let reports: Vec<&Report> = outcome.done.iter().chain(&outcome.failed).collect();
    match args.addons.output {
        Output::Json => output::print_json(&reports)?,
        Output::Text => output::print_text(&text(&reports))?,
    };
    let is_failed = !outcome.failed.is_empty() || scene.left_out().next().is_some();
    Ok(if is_failed { exit::FAILED } else { exit::CONVERGED })
}

fn text_of_recreations(recreations: &[Recreation]) -> String {
    let line = |recreation: &Recreation| {
        let state = match recreation.state {
            RecreationState::Missing => "does not exist",
            RecreationState::Shown => "would be deleted with its dependents, and recreated",
            RecreationState::Deleted => "deleted, to be recreated",
        };
        format!("{}: {state}\n", recreation.object)
    };
    recreations.iter().map(line).collect()
}

fn text(reports: &[&Report]) -> String {
    if reports.is_empty() {
        return "Nothing to do: the cluster has the add-ons of its channels.\n".to_owned();
    }
    let mut text = String::new();
    for report in reports {
        let state = if report.problems.is_empty() { "applied" } else { "FAILED" };
        let mut parts = vec![format!("{} objects", report.objects)];
        if report.made_authority {
            parts.push("its authority made".to_owned());
        }
        if report.marked_nodes > 0 {
            parts.push(format!("{} Nodes marked for replacement", report.marked_nodes));
        }
        let _ = writeln!(text, "{} {state}: {}", one_line(&report.name, usize::MAX), parts.join(", "));
        for (sign, lines) in [
            ("took over", &report.taken_over),
            ("pruned", &report.pruned),
            ("left paused", &report.paused),
            ("!", &report.problems),
        ] {
            for line in lines {
                let _ = writeln!(text, "  {sign} {}", one_line(line, usize::MAX));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_lists_applied_and_failed_work() {
        let done = Report {
            name: "a".into(),
            objects: 2,
            marked_nodes: 3,
            made_authority: true,
            ..Report::default()
        };
        let failed = Report {
            name: "b".into(),
            objects: 1,
            taken_over: vec!["ConfigMap a/b: .data.c".into()],
            pruned: vec!["Secret a/b".into()],
            problems: vec!["no".into()],
            ..Report::default()
        };
        assert_eq!(
            text(&[&done, &failed]),
            "a applied: 2 objects, its authority made, 3 Nodes marked for replacement\n\
             b FAILED: 1 objects\n  took over ConfigMap a/b: .data.c\n  pruned Secret a/b\n  ! no\n"
        );
        assert!(text(&[]).starts_with("Nothing to do"));
    }
}
