use super::super::{
    Configuration, NextPlan, NodeReport, ObservedMachine, Outcome, SeenCondition, WantedMachine,
    WantedMachines,
};
use super::*;
use crate::pacing::Versions;
use kops_agent_spec::failure::Kind;

const NOW: &str = "2026-11-26T12:00:00Z";
const EARLIER: &str = "2026-11-26T11:30:00Z";
const TODAY: &str = "2026-11-26T03:00:00Z";

fn no_controller() -> Failure {
    Failure::new(Kind::Other, "no controller")
}

fn plans(nodes: &[SeenNode]) -> Vec<GroupPlan> {
    groups(nodes, &Err(no_controller()), parse_timestamp(NOW).unwrap())
}

fn configuration(hash: &str) -> Option<Configuration> {
    Some(Configuration { hash: hash.into(), since: TODAY.into() })
}

fn node(name: &str, report: NodeReport) -> SeenNode {
    let next = report.next.as_ref().and_then(|next| next.value(&Versions::default()));
    let message = report.statement().message;
    let configured =
        Some(SeenCondition { message, last_heartbeat_time: EARLIER.into(), ..SeenCondition::default() });
    let (name, group) = (name.to_owned(), "nodes".to_owned());
    SeenNode { name, group, configured, next: next.unwrap_or_default(), ..SeenNode::default() }
}

fn current(name: &str, runs: &str) -> SeenNode {
    node(name, NodeReport { runs: configuration(runs), ..NodeReport::default() })
}

fn restarting(unit: &str) -> NextPlan {
    NextPlan { change: 1, restarts: vec![unit.to_owned()], ..NextPlan::default() }
}

/// A node that runs `a=`, and has planned the change to the configuration in `next`.
fn superseded(name: &str, next: Next) -> SeenNode {
    let (runs, superseded_by) = (configuration("a="), configuration(&next.hash));
    node(name, NodeReport { runs, superseded_by, next: Some(next), ..NodeReport::default() })
}

fn planned(at: &str, unit: &str) -> Next {
    Next::planned(at, "a=", "b=", restarting(unit))
}

fn states(plan: &GroupPlan) -> [usize; 3] {
    [plan.current, plan.superseded, plan.unknown]
}

#[test]
fn the_newest_plan_of_a_node_stands_for_its_group() {
    let nodes = [
        superseded("i-3", planned("2026-11-26T11:00:00Z", "kubelet.service")),
        superseded("i-2", planned(EARLIER, "kubelet.service")),
        superseded("i-1", planned("2026-11-26T11:00:00Z", "kubelet.service")),
        SeenNode { group: "gpu".into(), ..current("g", "c=") },
    ];
    let plans = plans(&nodes);
    assert_eq!(plans.iter().map(|plan| plan.group.as_str()).collect::<Vec<_>>(), ["gpu", "nodes"]);
    assert_eq!((states(&plans[0]), &plans[0].next), ([1, 0, 0], &None));
    assert_eq!((states(&plans[1]), plans[1].from.as_deref()), ([0, 3, 0], Some("i-2")));
    assert_eq!(plans[1].next.as_ref().unwrap().at, EARLIER);
    assert!(plans[1].disagreements.is_empty(), "{plans:#?}");
}

#[test]
fn disagreements_between_nodes_of_a_group_are_reported() {
    let nodes = [
        superseded("i-1", planned(EARLIER, "kubelet.service")),
        superseded("i-2", planned("2026-11-26T11:00:00Z", "containerd.service")),
        current("i-3", "a="),
        current("i-4", "a="),
    ];
    let plan = plans(&nodes).remove(0);
    assert_eq!(
        plan.disagreements,
        [
            "the nodes report 2 different configurations as the newest of the group: a= (i-3 and 1 other \
             node), b= (i-1 and 1 other node)",
            "the planned change of i-2 differs from the planned change of i-1",
        ]
    );
    let problem = superseded("i-2", Next::not_planned(EARLIER, "a=", "b=", "no network"));
    let nodes = [superseded("i-1", planned(EARLIER, "kubelet.service")), problem];
    let plan = plans(&nodes).remove(0);
    assert_eq!(plan.disagreements, ["the planned change of i-2 differs from the planned change of i-1"]);
    assert!(
        matches!(&plan.nodes[1].next.as_ref().unwrap().outcome, Outcome::Problem(why) if why == "no network")
    );
}

#[test]
fn a_group_whose_nodes_trust_other_authorities_than_the_cluster_has_a_note() {
    let trusts = |node: SeenNode, digit: &str| SeenNode { authorities: digit.repeat(64), ..node };
    let mut nodes = [
        trusts(current("i-1", "a="), "0"),
        trusts(SeenNode { group: "masters".into(), ..current("m-1", "b=") }, "0"),
        // A kubelet can write any text, so an invalid digest is ignored.
        SeenNode { authorities: "z".into(), ..current("i-2", "a=") },
    ];
    assert!(plans(&nodes).iter().all(|plan| plan.disagreements.is_empty()), "{:?}", plans(&nodes));
    nodes[1].authorities = "1".repeat(64);
    let plans = plans(&nodes);
    for (plan, shown) in plans.iter().zip(["111111111111 (m-1)", "000000000000 (i-1)"]) {
        assert!(plan.disagreements[0].ends_with(&format!("with the digests {shown}")), "{plan:?}");
    }
}

#[test]
fn an_unknown_or_superseded_node_says_why() {
    let at = |time: &str| {
        let mut node = current("i", "a=");
        node.configured.as_mut().unwrap().last_heartbeat_time = time.into();
        node
    };
    let by_verify = "its next hourly verify publishes one";
    for (node, state, why) in [
        (SeenNode { name: "i".into(), ..SeenNode::default() }, State::Unknown, "it has reported nothing"),
        (node("i", NodeReport::default()), State::Unknown, "it has not converged yet"),
        (at("2026-11-26T08:59:59Z"), State::Unknown, "no report since 2026-11-26T08:59:59Z"),
        (at("2026-11-26T12:05:01Z"), State::Unknown, "a time in the future"),
        (at(""), State::Unknown, "has no time"),
        (at("2026-11-26T09:00:00Z"), State::Current, ""),
        (
            SeenNode { next: String::new(), ..superseded("i", planned(EARLIER, "a")) },
            State::Superseded,
            by_verify,
        ),
        (
            SeenNode { next: "{".into(), ..superseded("i", planned(EARLIER, "a")) },
            State::Superseded,
            "kops-agent/next",
        ),
        (superseded("i", planned("2026-11-26T12:05:01Z", "a")), State::Superseded, "a time in the future"),
        (
            superseded("i", Next::planned(EARLIER, "z=", "b=", NextPlan::default())),
            State::Superseded,
            "begins with a configuration that it does not run",
        ),
    ] {
        let plan = plans(std::slice::from_ref(&node)).remove(0).nodes.remove(0);
        assert_eq!((plan.state, &plan.next), (state, &None), "{node:?}");
        assert!(plan.why.contains(why) && plan.why.is_empty() == why.is_empty(), "{plan:?}");
    }
}

#[test]
fn a_node_that_lies_changes_nothing_of_the_others() {
    let honest = [
        superseded("i-1", planned(EARLIER, "kubelet.service")),
        current("i-2", "b="),
        SeenNode { name: "i-3".into(), group: "nodes".into(), ..SeenNode::default() },
    ];
    let before = plans(&honest).remove(0);
    for liar in [
        current("liar", "zzz="),
        superseded("liar", Next::planned(NOW, "a=", "zzz=", restarting("x.service"))),
        superseded("liar", planned("2999-01-01T00:00:00Z", "x.service")),
        SeenNode { next: "[".repeat(4000), ..superseded("liar", planned(EARLIER, "a")) },
    ] {
        let plan = plans(&[&honest[..], std::slice::from_ref(&liar)].concat()).remove(0);
        assert_eq!(plan.nodes[..3], before.nodes, "{liar:?}");
        assert_eq!(plan.nodes[3].name, "liar");
    }
}

#[test]
fn each_node_is_compared_with_the_spec_of_its_group() {
    let group = WantedMachine { machine_types: vec!["m5.large".into()], ..WantedMachine::default() };
    let wanted = WantedMachines::new(EARLIER, [("nodes".to_owned(), group)].into());
    let machine = ObservedMachine::new(Some("t3.large".into()), None).value().unwrap();
    let machine = || machine.clone();
    let silent = SeenNode { configured: None, machine: machine(), ..current("silent", "a=") };
    let nodes = [SeenNode { machine: machine(), ..current("told", "a=") }, silent, current("untold", "a=")];
    let plan = |wanted: &_| groups(&nodes, wanted, parse_timestamp(NOW).unwrap()).remove(0).nodes;
    let compared: Vec<(String, usize)> =
        plan(&Ok(wanted)).into_iter().map(|node| (node.name, node.machine.needs_new_machine.len())).collect();
    let expected = [("silent", 0), ("told", 1), ("untold", 0)];
    assert_eq!(compared, expected.map(|(name, count)| (name.to_owned(), count)));
    let unknown = plan(&Err(no_controller()));
    assert!(unknown.iter().all(|node| node.machine.not_compared.len() == 1), "{unknown:?}");
}
