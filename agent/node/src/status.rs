//! The text of a node's status, which `kops-agent status` prints. [`crate::metrics`] has the status for node_exporter.

use std::fmt::Write as _;

use kops_agent_host::{CertificateStatus, Failure, RolledBack, Status, UnitStatus};
use kops_agent_process::output::plain_lines;

use super::last_applied::superseded as meaning_of_superseded;

/// The text output names each certificate that expires in fewer than this number of days.
const SOON: i64 = 30;

/// The status as text for people, with the remedies for problems.
pub fn text(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_text(&mut text, status);
    // A failure may quote a server, for example the state store or a mirror. So control characters are removed.
    plain_lines(&text)
}

fn write_text(text: &mut String, status: &Status) -> std::fmt::Result {
    let Status {
        converged,
        never_converged,
        config_hash,
        written_by,
        followed_from,
        converged_since,
        failure,
        unfinished,
        rolled_back,
        superseded,
        changed,
        units,
        certificates,
    } = status;
    match converged_since {
        _ if *never_converged => writeln!(text, "NEVER CONVERGED: no run has finished on this machine")?,
        Some(since) => writeln!(text, "converged    since {since}")?,
        None => writeln!(text, "applied      all but what failed")?,
    }
    if !config_hash.is_empty() {
        writeln!(text, "config hash  {config_hash}")?;
    }
    if let Some(pinned) = followed_from {
        writeln!(
            text,
            "follows      its group; the user-data pins {pinned} (`kops-agent converge --no-follow` goes back)"
        )?;
    }
    if let Some(written_by) = written_by {
        writeln!(text, "written by   {written_by}")?;
    }
    let is_rollback = |failure: &&Failure| {
        rolled_back.as_ref().is_some_and(|rolled_back| failure.problem.contains(&rolled_back.problem))
    };
    if let Some(Failure { at, problem, code }) = failure.as_ref().filter(|failure| !is_rollback(failure)) {
        let code = if code.is_empty() { String::new() } else { format!(" [{code}]") };
        writeln!(text, "last run     FAILED at {at}: {}{code}", indented(problem))?;
        if *converged {
            writeln!(text, "             nothing on this node has changed, and its units run")?;
        }
    }
    if *unfinished {
        writeln!(text, "unfinished   a change is not finished: a run is in progress, or was killed")?;
    }
    if let Some(rolled_back) = rolled_back {
        write_rollback(text, rolled_back)?;
    }
    if let Some(superseded) = superseded {
        writeln!(text, "superseded   since {}: {}", superseded.since, meaning_of_superseded(&superseded.by))?;
    }
    let stopped: Vec<&UnitStatus> = units.iter().filter(|unit| !unit.running).collect();
    let down = if stopped.is_empty() { "" } else { ", DOWN:" };
    writeln!(text, "units        {} of {} running{down}", units.len() - stopped.len(), units.len())?;
    for unit in stopped {
        writeln!(text, "             {} does not run; `journalctl -u {}` says why", unit.name, unit.name)?;
    }
    match changed.len() {
        0 => writeln!(text, "changed      nothing since")?,
        number => writeln!(text, "DRIFT        {number} changed since the last run")?,
    }
    for drift in changed {
        writeln!(text, "             {}: {}", drift.resource, drift.how.join(", "))?;
    }
    write_certificates(text, certificates)?;
    if !changed.is_empty() {
        writeln!(text, "to do        `kops-agent verify` shows the drift; `kops-agent converge` repairs it")?;
    } else if *unfinished || (failure.is_some() && rolled_back.is_none()) {
        writeln!(text, "to do        correct the cause of the failure, then run `kops-agent converge`")?;
    }
    Ok(())
}

/// Indents all lines after the first to the column at which the first line begins.
fn indented(lines: &str) -> String {
    lines.replace('\n', "\n             ")
}

fn write_rollback(text: &mut String, rolled_back: &RolledBack) -> std::fmt::Result {
    let RolledBack { at, config_hash, back_to, problem, still_wrong, .. } = rolled_back;
    writeln!(text, "ROLLED BACK  at {at} from {config_hash} to {back_to}")?;
    writeln!(text, "             because {}", indented(problem))?;
    for wrong in still_wrong {
        writeln!(text, "             and since then: {}", indented(wrong))?;
    }
    writeln!(
        text,
        "             meanwhile runs repair drift from the last applied configuration\n             to do: correct the cluster's spec, or \
         try the change again with `kops-agent converge --retry-failed`"
    )
}

fn write_certificates(text: &mut String, certificates: &[CertificateStatus]) -> std::fmt::Result {
    let Some(first) = certificates.iter().find(|certificate| certificate.days_left.is_some()) else {
        return writeln!(text, "certificates none");
    };
    let days = first.days_left.unwrap_or_default();
    writeln!(text, "certificates {}, the first expires in {days} days ({})", certificates.len(), first.path)?;
    for certificate in certificates {
        match certificate.days_left {
            None => writeln!(text, "             {} is missing or cannot be read", certificate.path)?,
            Some(days) if days < 0 => writeln!(text, "             {} HAS EXPIRED", certificate.path)?,
            Some(days) if days < SOON => {
                writeln!(text, "             {} expires in {days} days", certificate.path)?
            }
            Some(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_host::{Drift, Superseded};
    use kops_agent_plan::resource::{Kind, ResourceId};
    use kops_agent_plan::timeline::Timelines;

    /// The status of a machine after a failed run, with a changed file and a stopped unit.
    pub(crate) fn status() -> Status {
        Status {
            converged: false,
            never_converged: false,
            config_hash: "abc=".into(),
            written_by: None,
            followed_from: None,
            converged_since: Some("2026-01-02T03:04:05Z".into()),
            failure: Some(Failure {
                at: "2026-02-03T04:05:06Z".into(),
                problem: "no network; plug it in".into(),
                code: "KA2005".into(),
            }),
            unfinished: true,
            rolled_back: None,
            superseded: None,
            changed: vec![Drift {
                resource: ResourceId::new(Kind::File, "/etc/x"),
                how: vec!["content".into(), "mode".into()],
            }],
            units: vec![
                UnitStatus { name: "kubelet.service".into(), running: false },
                UnitStatus { name: "containerd.service".into(), running: true },
            ],
            certificates: vec![CertificateStatus {
                path: "/srv/a \"b\".crt".into(),
                expires: Some(100),
                days_left: Some(7),
            }],
        }
    }

    /// docs/errors.md names the field `failure.code`.
    #[test]
    fn json_has_the_code_of_a_failure() {
        let failure = serde_json::to_value(status()).unwrap()["failure"].take();
        let expected = serde_json::json!({
            "at": "2026-02-03T04:05:06Z", "problem": "no network; plug it in", "code": "KA2005",
        });
        assert_eq!(failure, expected);
    }

    #[test]
    fn a_status_shows_problems_and_remedies() {
        let text = text(&status());
        for part in [
            "converged    since 2026-01-02T03:04:05Z",
            "FAILED at 2026-02-03T04:05:06Z: no network; plug it in [KA2005]\n",
            "unfinished   a change is not finished",
            "1 of 2 running, DOWN:",
            "kubelet.service does not run; `journalctl -u kubelet.service`",
            "DRIFT        1 changed since the last run\n             file /etc/x: content, mode",
            "expires in 7 days",
            " converge` repairs it",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(text.lines().count() < 24, "more than a screen:\n{text}");
    }

    #[test]
    fn a_status_shows_no_control_characters_of_a_server() {
        let problem = "the store answers 400 \u{1b}]0;pwned\u{7}\u{9b}2J\u{202e}\nnext".into();
        let status =
            Status { failure: Some(Failure { at: "now".into(), problem, code: String::new() }), ..status() };
        let text = plain_lines(&text(&status));
        assert!(text.contains("the store answers 400  ]0;pwned  2J \n             next\n"), "{text:?}");
    }

    #[test]
    fn a_rolled_back_change_is_shown_once() {
        let rolled_back: RolledBack = serde_json::from_value(serde_json::json!({
            "at": "2026-02-03T04:05:06Z", "configHash": "new=", "backTo": "abc=", "desired": "",
            "problem": "unit kubelet.service did not become healthy: connection refused",
            "stillWrong": ["unit x.service did not become healthy"],
        }))
        .unwrap();
        let problem = rolled_back.to_string();
        let failure = Some(Failure { at: "2026-02-03T04:05:06Z".into(), problem, code: String::new() });
        let status = Status {
            rolled_back: Some(rolled_back),
            failure,
            unfinished: false,
            changed: vec![],
            ..status()
        };
        let text = text(&status);
        for part in [
            "ROLLED BACK  at 2026-02-03T04:05:06Z from new= to abc=\n",
            "             because unit kubelet.service did not become healthy: connection refused\n",
            "             and since then: unit x.service did not become healthy\n",
            " converge --retry-failed`",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains("last run") && !text.contains(" verify`"), "{text}");
        assert!(metrics(&status).contains("\nkops_agent_rolled_back 1\n"));
    }

    #[test]
    fn a_superseded_node_is_shown_as_such_and_is_healthy() {
        let superseded =
            Some(Superseded { since: "2026-03-04T05:06:07Z".into(), by: "next=".into(), next: None });
        let converged = Status {
            superseded,
            converged: true,
            failure: None,
            unfinished: false,
            changed: vec![],
            ..status()
        };
        let text = text(&converged);
        let line = "superseded   since 2026-03-04T05:06:07Z: the cluster has a new configuration (next=)";
        assert!(text.contains(line) && text.starts_with("converged "), "{text}");
        assert!(!text.contains("to do"), "{text}");
        assert!(metrics(&converged).contains("\nkops_agent_superseded 1\n"));
        assert!(metrics(&status()).contains("\nkops_agent_superseded 0\n"));
    }

    /// A node can be converged although its last run failed, for example in an outage of the store.
    #[test]
    fn a_failed_run_a_stopped_unit_drift_and_no_run_yet_are_shown_differently() {
        let well = Status {
            converged: true,
            failure: None,
            unfinished: false,
            changed: vec![],
            units: vec![UnitStatus { name: "kubelet.service".into(), running: true }],
            ..status()
        };
        let failure = status().failure;
        let failed = Status { failure: failure.clone(), ..well.clone() };
        let down = Status { converged: false, units: status().units, ..well.clone() };
        let drift = Status { converged: false, changed: status().changed, ..well.clone() };
        let never = Status {
            converged: false,
            never_converged: true,
            converged_since: None,
            config_hash: String::new(),
            failure,
            units: vec![],
            ..well.clone()
        };
        let marks = ["FAILED", "DOWN", "DRIFT", "NEVER CONVERGED"];
        let names = [
            "converged{config_hash=\"abc=\"} 1",
            "last_run_failed 1",
            "changed_resources 1",
            "never_converged 1",
        ];
        for (status, told, counted) in [
            (well, &[][..], &[names[0]][..]),
            (failed, &["FAILED"], &[names[0], names[1]]),
            (down, &["DOWN"], &[]),
            (drift, &["DRIFT"], &[names[2]]),
            (never, &["FAILED", "NEVER CONVERGED"], &[names[1], names[3]]),
        ] {
            let text = text(&status);
            assert_eq!(marks.iter().filter(|mark| text.contains(**mark)).count(), told.len(), "{text}");
            assert!(told.iter().all(|mark| text.contains(mark)), "{text}");
            let metrics = metrics(&status);
            for name in names {
                let has = metrics.contains(&format!("\nkops_agent_{name}\n"));
                assert_eq!(has, counted.contains(&name), "{name} in {metrics}");
            }
            assert!(!told.contains(&"FAILED") || text.contains("no network; plug it in"), "{text}");
        }
    }

    fn metrics(status: &Status) -> String {
        crate::metrics::of_status(status, None, &Timelines::default())
    }
}
