//! The table of `kops-agent fleet status`.

use std::fmt::Write as _;

use kops_agent_spec::terminal::{SHOWN_OF_PROBLEM, cell, columns, one_line};

use super::{Row, SeenCertificate, different_authorities, short_hash};

/// A cell of a table. An empty text becomes `-`.
pub(crate) fn shown(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// A table with one line per node. The problems of the nodes are below the table.
pub fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "There are no Nodes.\n".to_owned();
    }
    let header = [
        "GROUP",
        "NAME",
        "READY",
        "CONFIGURED",
        "REASON",
        "HASH",
        "SUPERSEDED BY",
        "FOLLOWS",
        "CERTIFICATES",
        "REBOOT",
        "KUBELET",
        "AGENT",
    ];
    let mut text = columns(header, rows.iter().map(line));
    for row in rows.iter().filter(|row| !row.problem.is_empty()) {
        let (name, problem) = (cell(&row.name), one_line(&row.problem, SHOWN_OF_PROBLEM));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}: {problem}");
    }
    let trusted = rows.iter().filter_map(|row| Some((&*row.group, &*row.name, row.authorities.as_deref()?)));
    for (group, note) in different_authorities(trusted) {
        let _ = writeln!(text, "{}: {}", shown(&cell(group)), one_line(&note, SHOWN_OF_PROBLEM));
    }
    text
}

fn line(row: &Row) -> [String; 12] {
    let short = |hash: Option<&str>| shown(&short_hash(hash.unwrap_or_default()));
    [
        shown(&row.group),
        shown(&row.name),
        shown(&row.ready),
        shown(&row.configured),
        shown(&row.reason),
        short(row.runs.as_ref().map(|runs| runs.hash.as_str())),
        short(row.superseded_by.as_deref()),
        shown(row.followed_from.as_ref().map_or("", |_| "yes")),
        shown(&row.first_certificate.as_ref().map(certificate).unwrap_or_default()),
        shown(reboot(row.reboot_required.as_deref())),
        shown(&row.kubelet_version),
        // The table omits the commit. Only the JSON output contains it.
        shown(row.agent_version.split(' ').next().unwrap_or_default()),
    ]
}

/// Whether a node requires a reboot. Only the JSON output contains the reasons.
fn reboot(required: Option<&[String]>) -> &'static str {
    match required {
        None => "",
        Some([]) => "no",
        Some(_) => "required",
    }
}

/// Formats a certificate as `kubelet 2026-12-24 (28d)` or `expired kubelet 2026-11-20`.
fn certificate(first: &SeenCertificate) -> String {
    let SeenCertificate { name, expires, days_left } = first;
    let day = expires.split('T').next().unwrap_or_default();
    match days_left {
        ..0 => format!("expired {name} {day}"),
        days => format!("{name} {day} ({days}d)"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Configuration;
    use super::*;

    #[test]
    fn long_texts_of_a_kubelet_do_not_break_the_table() {
        let told = "x".repeat(1 << 17);
        let row = Row {
            group: told.clone(),
            name: told.clone(),
            ready: told.clone(),
            configured: told.clone(),
            reason: told.clone(),
            kubelet_version: told.clone(),
            problem: told,
            ..Row::default()
        };
        let table = table(&[row]);
        assert!(table.lines().all(|line| line.chars().count() < 4000), "{} bytes", table.len());
    }

    #[test]
    fn the_table_has_a_line_a_node_and_problems_below() {
        let runs = Some(Configuration { hash: "0123456789abcdef=".into(), since: "t".into() });
        let row = |name: &str| Row {
            name: name.into(),
            group: "nodes".into(),
            ready: "True".into(),
            ..Row::default()
        };
        let mut rows = vec![
            Row {
                configured: "False".into(),
                reason: "RunFailed".into(),
                runs,
                superseded_by: Some("fedcba9876543210=".into()),
                problem: "the run of t failed: no\u{1b}[2J network".into(),
                first_certificate: Some(SeenCertificate {
                    name: "kubelet".into(),
                    expires: "2026-12-24T03:04:05Z".into(),
                    days_left: 28,
                }),
                kubelet_version: "v1.36.0".into(),
                agent_version: "0.1.0 (abc)".into(),
                followed_from: Some("c=".into()),
                reboot_required: Some(vec!["packages ask for it: libc6".into()]),
                ..row("i-1")
            },
            row("i-2"),
        ];
        assert_eq!(
            table(&rows),
            "GROUP  NAME  READY  CONFIGURED  REASON     HASH          SUPERSEDED BY  FOLLOWS  CERTIFICATES              REBOOT    KUBELET  AGENT\n\
             nodes  i-1   True   False       RunFailed  0123456789ab  fedcba987654   yes      kubelet 2026-12-24 (28d)  required  v1.36.0  0.1.0\n\
             nodes  i-2   True   -           -          -             -              -        -                         -         -        -\n\
             i-1: the run of t failed: no [2J network\n"
        );
        for (row, digest) in rows.iter_mut().zip(["0", "1"]) {
            row.authorities = Some(digest.repeat(64));
        }
        let note = "nodes of this group trust the sets with the digests 000000000000 (i-1), 111111111111 \
                    (i-2)\n";
        assert!(table(&rows).ends_with(note), "{}", table(&rows));
        let mut expired = rows[0].first_certificate.clone().unwrap_or_default();
        expired.days_left = -1;
        assert_eq!(certificate(&expired), "expired kubelet 2026-12-24");
        rows[1].reason = "\u{9b}2J".into();
        assert!(!table(&rows).contains('\u{9b}'));
        assert_eq!(table(&[]), "There are no Nodes.\n");
    }
}
