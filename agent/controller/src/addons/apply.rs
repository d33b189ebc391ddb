//! `kops-agent addons apply`.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;
use kops_agent_net::retry::Retries;
use kops_agent_plan::addons::Due;
use kops_agent_process::output::Output;
use kops_agent_process::{exit, output};
use tokio::time::sleep;

use super::args::AddonsApplyArgs;
use super::standing::{Scene, Standing};
use super::updating::{self, Report};

/// The pause after the first round; each later one is about twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// No pause is longer, but for its jitter of up to as much again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Applies what is due, in the channels' order. Those that fail are tried again by themselves.
pub async fn run(scene: &Scene, args: &AddonsApplyArgs) -> Result<u8> {
    for left_out in scene.left_out() {
        log::warn!("the add-on {} is passed over: {}", left_out.name, left_out.problem);
    }
    let mut done: Vec<Report> = Vec::new();
    let mut failed: Vec<Report>;
    let mut pauses =
        Retries { first_pause: FIRST_PAUSE, longest_pause: LONGEST_PAUSE, ..Retries::default() }.pauses();
    let mut round = 0;
    loop {
        failed = Vec::new();
        let installed = scene.installed().await?;
        for standing in scene.standings(&installed).await? {
            // What is done once stays so, also where it is to be applied anew.
            let is_done = |report: &Report| {
                report.name == standing.addon.name && report.channel == standing.addon.channel
            };
            let Some(due) = wanted(&standing, args.reapply) else { continue };
            if done.iter().any(is_done) {
                continue;
            }
            let report = updating::update(&scene.objects, &scene.store, &standing.addon, &due).await;
            match report.problems.is_empty() {
                true => done.push(report),
                false => failed.push(report),
            }
        }
        if failed.is_empty() || round >= args.retries {
            break;
        }
        round += 1;
        for report in &failed {
            log::warn!("the add-on {} failed: {}", report.name, report.problems.join("; "));
        }
        let pause = pauses.next().unwrap_or(LONGEST_PAUSE);
        log::info!("what failed is tried again in {pause:.0?} ({round} of {})", args.retries);
        sleep(pause).await;
    }
    let is_failed = !failed.is_empty() || scene.left_out().next().is_some();
    let reports: Vec<&Report> = done.iter().chain(&failed).collect();
    match args.addons.output {
        Output::Json => output::print_json(&reports)?,
        Output::Text => output::print_bytes(text(&reports).as_bytes())?,
    };
    Ok(if is_failed { exit::FAILED } else { exit::CONVERGED })
}

/// What is due, or, where it is to be applied anew, as good as due. Nothing new runs on nodes then, and none is marked.
fn wanted(standing: &Standing, reapply: bool) -> Option<Due> {
    match &standing.due {
        Some(Due { version: Some(_), .. }) => standing.due.clone(),
        due if reapply => Some(Due {
            version: Some(standing.addon.version()),
            pki: due.as_ref().is_some_and(|due| due.pki),
            marks: None,
        }),
        due => due.clone(),
    }
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
        let _ =
            writeln!(text, "{} {state}: {}", output::one_line(&report.name, usize::MAX), parts.join(", "));
        for (sign, lines) in
            [("took over", &report.taken_over), ("pruned", &report.pruned), ("!", &report.problems)]
        {
            for line in lines {
                let _ = writeln!(text, "  {sign} {}", output::one_line(line, usize::MAX));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_was_done_and_what_was_not() {
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
