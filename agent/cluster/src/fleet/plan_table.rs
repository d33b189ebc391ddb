//! The table of `kops-agent fleet plan`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kops_agent_spec::terminal::{SHOWN_OF_PROBLEM, cell, columns, one_line};

use super::table::shown;
use super::{GroupPlan, Next, NextPlan, NodePlan, Outcome, State, named, short_hash};

/// The maximum number of lines of one kind, such as nodes with an unknown state, that a group has below the table. If there are more, an
/// additional line says how many are left out.
const NAMED_NODES: usize = 5;

/// A table with one line per group. Below it, there is one line per problem, and one line per reason for a new
/// machine. `not_compared` says why the machines were not compared.
pub fn table(groups: &[GroupPlan], not_compared: Option<&str>) -> String {
    if groups.is_empty() {
        return "There are no Nodes.\n".to_owned();
    }
    let header = [
        "GROUP",
        "CURRENT",
        "SUPERSEDED",
        "UNKNOWN",
        "NEXT",
        "CHANGES",
        "RESTARTS",
        "SLOT",
        "DRAIN",
        "AS PLANNED BY",
    ];
    let mut text = columns(header, groups.iter().map(line));
    for group in groups {
        let machines = if not_compared.is_some() { Vec::new() } else { machines(&group.nodes) };
        for problem in problems(group).into_iter().chain(machines) {
            let (group, problem) = (shown(&group.group), one_line(&problem, SHOWN_OF_PROBLEM));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}: {problem}", cell(&group));
        }
    }
    if let Some(why) = not_compared {
        let why = one_line(why, SHOWN_OF_PROBLEM);
        let _ = writeln!(text, "unknown whether nodes need new machines: {why}");
    }
    text
}

fn line(group: &GroupPlan) -> [String; 10] {
    let counts = [group.current, group.superseded, group.unknown].map(|count| count.to_string());
    let [current, superseded, unknown] = counts;
    let next = group.next.as_ref();
    let hash = next.map(|next| short_hash(&next.hash)).unwrap_or_default();
    let [changes, restarts, slot, drain] = match next.map(|next| &next.outcome) {
        Some(Outcome::Planned(plan)) => change(plan),
        _ => ["-"; 4].map(str::to_owned),
    };
    let from = match (&group.from, next) {
        (Some(from), Some(Next { at, .. })) => format!("{from} {at}"),
        _ => "-".to_owned(),
    };
    let (name, hash) = (shown(&group.group), shown(&hash));
    [name, current, superseded, unknown, hash, changes, restarts, slot, drain, from]
}

/// The cells of a plan: the changes, the restarts, whether it takes a slot, and whether `--drain auto` drains the
/// node.
fn change(plan: &NextPlan) -> [String; 4] {
    let NextPlan { create, change, remove, restarts, more_restarts, takes_slot, drains, .. } = plan;
    let counts = [(create, "new"), (change, "changed"), (remove, "removed")];
    let counts = counts.into_iter().filter(|(count, _)| **count > 0);
    let counts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    let mut names = restarts.clone();
    if *more_restarts > 0 {
        names.push(format!("and {more_restarts} more"));
    }
    let or_none = |texts: &[String]| if texts.is_empty() { "none".to_owned() } else { texts.join(", ") };
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    [or_none(&counts), or_none(&names), yes(*takes_slot), drains.map_or_else(|| "unknown".to_owned(), yes)]
}

fn problems(group: &GroupPlan) -> Vec<String> {
    let mut problems = Vec::new();
    if let (Some(from), Some(Outcome::Problem(problem))) =
        (&group.from, group.next.as_ref().map(|next| &next.outcome))
    {
        problems.push(format!("{} cannot plan the change: {problem}", cell(from)));
    }
    problems.extend(group.disagreements.iter().cloned());
    let unclear: Vec<&NodePlan> = group.nodes.iter().filter(|node| !node.why.is_empty()).collect();
    problems
        .extend(unclear.iter().take(NAMED_NODES).map(|node| format!("{}: {}", cell(&node.name), node.why)));
    if unclear.len() > NAMED_NODES {
        problems.push(format!(
            "{} more nodes have an unknown state or no usable plan; -o json names these nodes",
            unclear.len() - NAMED_NODES
        ));
    }
    problems
}

/// One line for each difference between a node's machine and the machine that its group wants, and one for each part that was not compared.
/// A line applies to one or more nodes. It names the first of these nodes, and the number of the others. Nodes with an unknown state are
/// left out, because `problems` lists them.
fn machines(nodes: &[NodePlan]) -> Vec<String> {
    let lines = |what: &str, of: fn(&NodePlan) -> &[String]| -> Vec<String> {
        let mut by_text: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for node in nodes.iter().filter(|node| node.state != State::Unknown) {
            of(node).iter().for_each(|text| by_text.entry(text).or_default().push(&node.name));
        }
        let all = by_text.len();
        let lines = by_text.into_iter().take(NAMED_NODES);
        let mut lines: Vec<String> =
            lines.map(|(text, names)| format!("{what}: {text} ({})", named(&names))).collect();
        if all > NAMED_NODES {
            lines.push(format!("{what}: {} more reasons; -o json lists all reasons", all - NAMED_NODES));
        }
        lines
    };
    let mut all = lines("needs a new machine", |node| &node.machine.needs_new_machine);
    all.extend(lines("not compared", |node| &node.machine.not_compared));
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_spec::failure::{Failure, Kind};
    use time::OffsetDateTime;

    use super::super::{ObservedMachine, SeenCondition, SeenNode, WantedMachine, WantedMachines, groups};
    use super::*;
    use crate::pacing::Versions;

    const AT: &str = "2026-11-26T04:05:06Z";

    fn superseded(name: &str, next: &Next) -> SeenNode {
        let message = format!("configuration a= since {AT}; superseded by {} since {AT}", next.hash);
        SeenNode {
            name: name.into(),
            group: "nodes".into(),
            configured: Some(SeenCondition {
                message,
                last_heartbeat_time: AT.into(),
                ..SeenCondition::default()
            }),
            next: next.value(&Versions { kubelet: "v1.35.0".into(), containerd: String::new() }).unwrap(),
            machine: ObservedMachine::new(Some("t3.large".into()), None).value().unwrap(),
            ..SeenNode::default()
        }
    }

    fn text_of(nodes: &[SeenNode]) -> String {
        let now = OffsetDateTime::parse(AT, &time::format_description::well_known::Rfc3339).unwrap();
        let wanted = WantedMachine { machine_types: vec!["m5.large".into()], ..WantedMachine::default() };
        let wanted = WantedMachines::new(AT, [("nodes".to_owned(), wanted)].into());
        table(&groups(nodes, &Ok(wanted), now), None)
    }

    fn planned() -> Next {
        let plan = NextPlan {
            change: 2,
            remove: 1,
            restarts: ["kubelet.service", "static pod kube-proxy"].map(str::to_owned).into(),
            more_restarts: 3,
            takes_slot: true,
            versions: Versions { kubelet: "1.36.0".into(), containerd: String::new() },
            ..NextPlan::default()
        };
        Next::planned(AT, "a=", "fedcba9876543210=", plan)
    }

    #[test]
    fn the_table_has_a_line_a_group_and_notes_below() {
        let silent = SeenNode { name: "i-2".into(), group: "nodes".into(), ..SeenNode::default() };
        assert_eq!(
            text_of(&[superseded("i-1", &planned()), silent]),
            "GROUP  CURRENT  SUPERSEDED  UNKNOWN  NEXT          CHANGES               RESTARTS                                            SLOT  DRAIN  AS PLANNED BY\n\
             nodes  0        1           1        fedcba987654  2 changed, 1 removed  kubelet.service, static pod kube-proxy, and 3 more  yes   yes    i-1 2026-11-26T04:05:06Z\n\
             nodes: i-2: it has reported nothing: nodeup made it, or it has only just started\n\
             nodes: needs a new machine: machine type t3.large, spec has m5.large (i-1)\n\
             nodes: not compared: image: the node does not report it (i-1)\n\
             nodes: not compared: root volume: the spec has no size (i-1)\n"
        );
        let refused = Next::not_planned(AT, "a=", "b=", "no network");
        let text = text_of(&[superseded("i-1", &refused)]);
        assert!(text.contains("nodes: i-1 cannot plan the change: no network\n"), "{text}");
        assert_eq!(text_of(&[]), "There are no Nodes.\n");
        let why = "no controller has read the specs";
        let unknown = Err(Failure::new(Kind::Other, why));
        let now = OffsetDateTime::UNIX_EPOCH;
        let text = table(&groups(&[superseded("i-1", &planned())], &unknown, now), Some(why));
        assert_eq!(text.matches(why).count(), 1, "{text}");
    }

    #[test]
    fn many_silent_nodes_are_counted() {
        let silent = |number: usize| SeenNode { name: format!("i-{number}"), ..SeenNode::default() };
        let text = text_of(&(0..NAMED_NODES + 2).map(silent).collect::<Vec<_>>());
        assert!(
            text.ends_with(
                "-: 2 more nodes have an unknown state or no usable plan; -o json names these nodes\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn long_or_unsafe_texts_of_a_kubelet_do_not_break_the_table() {
        let long = "x\u{1b}[2J".repeat(1 << 15);
        let mut named = superseded(&long, &planned());
        named.group.clone_from(&long);
        let mut told = superseded("i", &planned());
        told.next.clone_from(&long);
        told.configured.as_mut().unwrap().message = format!("configuration a=; superseded by b=; {long}");
        let unread = superseded("i", &Next::not_planned(AT, "a=", "b=", &long));
        for nodes in [vec![named], vec![told], vec![unread]] {
            let text = text_of(&nodes);
            assert!(
                text.lines().all(|line| line.chars().count() < 4000 && !line.contains('\u{1b}')),
                "{text}"
            );
        }
    }
}
