//! Changes of a working node: the run waits while another node has the group's disruption slot, then drains the node,
//! changes it and uncordons it.

use crate::cluster::{AGENT, BOOT_CONFIG, CONTROL_PLANE_ADDRESS, Cluster, NODE_NAME};
use crate::{READY, node_has, restarted, running_since};
use kops_agent_machines::machine::Machine;
use kops_agent_tests::example_store::{CLUSTER, NODES};

const HOSTS: &str = "/etc/hosts";
/// The group whose disruption slots are for Nodes without an instance group label. The instance groups of this cluster do not set that
/// label.
const GROUP: &str = "without-group";
/// The unit of a run that the test stops during the drain.
const DRAINING: &str = "draining.service";
/// A PodDisruptionBudget that allows no eviction of the pod.
const BUDGET: &str = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata:\n  name: example\nspec:\n  minAvailable: 1\n  \
                      selector:\n    matchLabels: {app: example}\n";

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

fn lease(holder: &str) -> String {
    format!(
        "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata:\n  name: kops-agent-disruption.{GROUP}.0\n  namespace: \
         kops-agent\n  labels: {{kops-agent/disruption-group: {GROUP}}}\nspec:\n  holderIdentity: {holder}\n  \
         leaseDurationSeconds: 300\n  acquireTime: \"2026-01-01T00:00:00.000000Z\"\n  renewTime: \
         \"2026-01-01T00:00:00.000000Z\"\n"
    )
}

fn holder(cluster: &Cluster) -> Option<String> {
    let lease = format!("kops-agent-disruption.{GROUP}.0");
    cluster.kubectl(&["-n", "kops-agent", "get", "lease", &lease, "-o", "jsonpath={.spec.holderIdentity}"])
}

/// While a different node has the group's disruption slot, a run with a changed kubelet setting changes nothing. When the slot is
/// free, the run drains its node and restarts kubelet.
pub fn a_node_is_drained_and_changed_when_it_has_the_slot(cluster: &Cluster) {
    let (control_plane, node): (&Machine, &Machine) = (&cluster.control_plane, &cluster.node);
    let hosts = node.read(HOSTS);
    node.write(HOSTS, &format!("{hosts}{CONTROL_PLANE_ADDRESS} kops-controller.internal.{CLUSTER}\n"));
    cluster.edit_spec("    maxPods: 42\n", "    maxPods: 43\n");
    let plan = cluster.agent(node, "plan", &["--color", "never"]);
    let line = format!("Before this run restarts kubelet.service, it takes a slot of the group {NODES}.\n");
    has(&plan.stdout, &[&line]);

    control_plane.write("/root/lease.yaml", &lease("i-another"));
    control_plane
        .until("another has the slot", || cluster.kubectl(&["apply", "--filename", "/root/lease.yaml"]));
    let before = running_since(node);
    let short = ["--max-unavailable", "1", "--slot-timeout", "8"];
    let ended = cluster.agent(node, "converge", &short);
    assert_eq!(ended.code, Some(1), "{}", node.explain(&ended));
    has(
        &ended.stderr,
        &["waiting for a slot to restart kubelet.service", "i-another has", "so nothing was changed"],
    );
    let ended = cluster.agent(node, "verify", &[&short[..], &["--repair"]].concat());
    assert_eq!(ended.code, Some(4), "{}", node.explain(&ended));
    has(&ended.stderr, &["the differences stay until the next run"]);
    assert_eq!(running_since(node), before, "a unit was restarted without a slot");
    assert_eq!(holder(cluster).as_deref(), Some("i-another"));

    control_plane.write("/root/lease.yaml", &lease("\"\""));
    control_plane.until("the slot is free", || cluster.kubectl(&["apply", "--filename", "/root/lease.yaml"]));
    a_blocked_drain_leaves_a_node_unchanged(cluster);
    assert_eq!(running_since(node), before, "a unit was restarted before the pods had left");
    let ended = cluster.agent(node, "converge", &["--max-unavailable", "1", "--drain"]);
    assert_eq!(ended.code, Some(0), "{}", node.explain(&ended));
    let cordoned = format!("the Node {NODE_NAME} is cordoned");
    let uncordoned = format!("the Node {NODE_NAME} is uncordoned");
    has(
        &ended.stderr,
        &["this node has the slot", &cordoned, "evicting the pod default/example", &uncordoned],
    );
    assert_eq!(restarted(&before, &running_since(node)), ["kubelet.service"]);
    node_has(cluster, NODE_NAME, "{.status.capacity.pods}", "43");
    node_has(cluster, NODE_NAME, READY, "True");
    is_uncordoned(cluster);
    assert_eq!(holder(cluster).as_deref(), Some(""), "the slot was not let go");
    cluster.control_plane.run(&["rm", "/root/lease.yaml"]);
    node.write(HOSTS, &hosts);
}

/// If a PodDisruptionBudget blocks the drain, the run fails after its drain timeout. A run that is stopped or killed during the drain ends
/// immediately. In each case, the node is uncordoned and unchanged afterwards.
fn a_blocked_drain_leaves_a_node_unchanged(cluster: &Cluster) {
    let (control_plane, node) = (&cluster.control_plane, &cluster.node);
    let kubectl = |arguments: &[&str]| cluster.kubectl(arguments);
    control_plane.write("/root/budget.yaml", BUDGET);
    control_plane.until("the pod is of the budget", || {
        kubectl(&["apply", "--filename", "/root/budget.yaml"])?;
        kubectl(&["label", "--overwrite", "pod", "example", "app=example"])
    });
    let short = ["--max-unavailable", "1", "--drain", "--drain-timeout", "8"];
    let ended = cluster.agent(node, "converge", &short);
    assert_eq!(ended.code, Some(1), "{}", node.explain(&ended));
    let cordoned = format!("the Node {NODE_NAME} is cordoned");
    let uncordoned = format!("the Node {NODE_NAME} is uncordoned");
    let left = "default/example: Cannot evict pod as it would violate the pod's disruption budget";
    let not_drained = "this node could not be drained, so nothing was changed";
    has(&ended.stderr, &[&cordoned, not_drained, "after 8 seconds (--drain-timeout)", left, &uncordoned]);
    is_uncordoned(cluster);
    assert_eq!(holder(cluster).as_deref(), Some(""), "the slot was not let go");

    is_stopped_while_it_drains(cluster, "TERM");
    is_stopped_while_it_drains(cluster, "KILL");
    control_plane.until("the budget is gone", || kubectl(&["delete", "poddisruptionbudget", "example"]));
    control_plane.run(&["rm", "/root/budget.yaml"]);
}

/// Ends a run with `signal` while it drains the node. Checks that the node is then uncordoned. This machine does not have the agent's
/// timers, so no timer uncordons the node.
fn is_stopped_while_it_drains(cluster: &Cluster, signal: &str) {
    let node = &cluster.node;
    let environment = cluster.environment();
    let mut command = vec!["systemd-run", "--quiet", "--unit", DRAINING, "env"];
    command.extend(environment.iter().map(String::as_str));
    command.extend([AGENT, "converge", "--conf", BOOT_CONFIG, "--config-base", cluster.config_base()]);
    command.extend(["--max-unavailable", "1", "--drain"]);
    node.run(&command);
    node_has(cluster, NODE_NAME, "{.spec.unschedulable}", "true");
    node.run(&["systemctl", "kill", "--signal", signal, DRAINING]);
    node.until("the run has ended", || (node.show(DRAINING, "ActiveState") == "failed").then_some(()));
    node.run(&["systemctl", "reset-failed", DRAINING]);
    is_uncordoned(cluster);
    node.until("nothing waits beside a run", || {
        (node.show("kops-agent-uncordon.service", "ActiveState") == "inactive").then_some(())
    });
}

fn is_uncordoned(cluster: &Cluster) {
    let cordon = "{.spec.unschedulable}{.metadata.annotations.kops-agent/cordoned-since}";
    node_has(cluster, NODE_NAME, cordon, "");
}
