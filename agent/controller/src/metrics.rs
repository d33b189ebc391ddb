//! The Prometheus metrics of control-plane mode. A metric that controller-runtime also has gets controller-runtime's
//! name, so that dashboards and rules for upstream's kops-controller keep working.

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use kops_agent_cluster::rollout::Status;

use kops_agent_cloud::calls::CloudCalls;
use kops_agent_kube::lease;
use kops_agent_process::version::{Version, of_this_program};

/// The value of the label `controller`, as in upstream's metrics.
const NODE: &str = "node";
/// The upper bounds of controller-runtime's histogram buckets, in seconds.
const SECONDS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reconciled {
    /// The Node has all labels and pod address ranges that it can get now.
    Success,
    /// The reconcile failed, and is retried.
    Error,
    /// The Node changed during the reconcile, and is reconciled again.
    Requeued,
    /// The Node is rejected: it claims a machine that is not its own, or there is another reason not to
    /// label it.
    Refused,
}

impl EncodeLabelValue for Reconciled {
    fn encode(
        &self,
        encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>,
    ) -> Result<(), std::fmt::Error> {
        let name = match self {
            Reconciled::Success => "success",
            Reconciled::Error => "error",
            Reconciled::Requeued => "requeue_after",
            Reconciled::Refused => "refused",
        };
        name.encode(encoder)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    result: Reconciled,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    outcome: &'static str,
    reason: &'static str,
}

/// The metrics of the bootstrap server. Clones share their values.
#[derive(Clone, Debug)]
pub struct BootstrapMetrics {
    requests: Family<ByOutcome, Counter>,
    renewals: Family<ByOutcome, Counter>,
    slots: Family<ByOutcome, Counter>,
    seconds: Histogram,
    /// Requests that wait to be verified.
    pub waiting: Gauge,
    pub connections: Gauge,
    /// Connections that were rejected, or ended before their request arrived, because there were too many.
    pub connections_refused: Counter,
    /// 1 while the configuration has a bootstrap server, but machines cannot bootstrap at this process.
    pub down: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByGroup {
    instance_group: String,
    state: &'static str,
}

/// The metrics of the rollout that this process leads. Clones share one set of values.
#[derive(Clone, Debug, Default)]
pub struct RolloutMetrics {
    nodes: Family<ByGroup, Gauge>,
    /// 1 if the policy is not valid, else 0.
    policy_refused: Gauge,
}

impl RolloutMetrics {
    /// Clears the metrics, because this process does not lead or the cluster has no rollout.
    pub fn clear(&self) {
        self.show(&Status::default(), false);
    }

    /// Sets the metrics to the status of a rollout. Also sets whether the policy is refused.
    pub fn show(&self, status: &Status, is_policy_refused: bool) {
        self.policy_refused.set(is_policy_refused.into());
        self.nodes.clear();
        for (instance_group, group) in &status.groups {
            for (state, nodes) in [
                ("done", group.done),
                ("updating", group.updating.len()),
                ("waiting", group.waiting),
                ("failed", group.failed),
            ] {
                let labels = ByGroup { instance_group: instance_group.clone(), state };
                self.nodes.get_or_create(&labels).set(i64::try_from(nodes).unwrap_or(i64::MAX));
            }
        }
    }
}

impl BootstrapMetrics {
    pub fn new() -> BootstrapMetrics {
        BootstrapMetrics {
            requests: Family::default(),
            renewals: Family::default(),
            slots: Family::default(),
            seconds: Histogram::new(SECONDS),
            waiting: Gauge::default(),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            down: Gauge::default(),
        }
    }

    /// Counts an answer to a bootstrap request, and observes how long the answer took.
    pub fn count_bootstrap(&self, reason: &'static str, is_granted: bool, took: Duration) {
        let outcome = if is_granted { "granted" } else { "refused" };
        self.requests.get_or_create(&ByOutcome { outcome, reason }).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    pub fn renewed(&self, reason: &'static str, is_granted: bool) {
        let outcome = if is_granted { "granted" } else { "refused" };
        self.renewals.get_or_create(&ByOutcome { outcome, reason }).inc();
    }

    /// Counts an answer to a node's slot request.
    pub fn paced(&self, reason: &'static str, is_granted: bool) {
        let outcome = if is_granted { "granted" } else { "refused" };
        self.slots.get_or_create(&ByOutcome { outcome, reason }).inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "kops_agent_slot_requests",
            "Requests of nodes that acquire, renew or release a slot for a change that restarts them, by outcome and reason",
            self.slots.clone(),
        );
        registry.register(
            "kops_agent_renewal_requests",
            "Requests of nodes that renew their certificates, by outcome and reason",
            self.renewals.clone(),
        );
        registry.register(
            "kops_agent_bootstrap_requests",
            "Requests of machines to become nodes, by outcome and reason",
            self.requests.clone(),
        );
        registry.register(
            "kops_agent_bootstrap_seconds",
            "Time from a machine's request to the answer",
            self.seconds.clone(),
        );
        registry.register(
            "kops_agent_bootstrap_waiting",
            "Requests that wait to be verified",
            self.waiting.clone(),
        );
        registry.register(
            "kops_agent_bootstrap_connections",
            "Connections to the bootstrap server",
            self.connections.clone(),
        );
        registry.register(
            "kops_agent_bootstrap_connections_refused",
            "Connections to the bootstrap server that were closed at once or ended early, because there were too many",
            self.connections_refused.clone(),
        );
        registry.register(
            "kops_agent_bootstrap_down",
            "Whether machines cannot bootstrap here, although the configuration has a server for them",
            self.down.clone(),
        );
    }
}

/// The metrics of control-plane mode. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconciled: Family<ByResult, Counter>,
    errors: Counter,
    seconds: Histogram,
    depth: Gauge,
    waiting_for_cloud: Gauge,
    refusals: Family<Reason, Counter>,
    /// Patches that the API server accepted.
    pub patches: Counter,
    /// Labels that Nodes did not get, because the API server would reject them.
    pub labels_left_out: Counter,
    /// Lookups that found a Node's identity in the cache.
    pub cache_hits: Counter,
    /// Whether this process holds the Lease.
    pub leads: Gauge,
    /// Whether this process does nothing, because its configuration needs kOps' own kops-controller.
    pub left_to_upstream: Gauge,
    /// Whether the state store could be read at the last refresh.
    pub store_is_readable: Gauge,
    pub cloud_calls: CloudCalls,
    pub bootstrap: BootstrapMetrics,
    pub rollout: RolloutMetrics,
}

impl Metrics {
    pub fn new() -> Metrics {
        Metrics {
            reconciled: Family::default(),
            errors: Counter::default(),
            seconds: Histogram::new(SECONDS),
            depth: Gauge::default(),
            waiting_for_cloud: Gauge::default(),
            refusals: Family::default(),
            patches: Counter::default(),
            labels_left_out: Counter::default(),
            cache_hits: Counter::default(),
            leads: Gauge::default(),
            left_to_upstream: Gauge::default(),
            store_is_readable: Gauge::default(),
            cloud_calls: CloudCalls::default(),
            bootstrap: BootstrapMetrics::new(),
            rollout: RolloutMetrics::default(),
        }
    }

    pub fn reconciled(&self, result: Reconciled, took: Duration) {
        self.reconciled.get_or_create(&ByResult { result }).inc();
        if result == Reconciled::Error {
            self.errors.inc();
        }
        self.seconds.observe(took.as_secs_f64());
    }

    /// Counts a rejected Node, by reason.
    pub fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&Reason { reason }).inc();
    }

    /// Sets two numbers: the due Nodes, and the Nodes that wait because their cloud does not answer.
    pub fn queued(&self, depth: usize, waiting_for_cloud: usize) {
        self.depth.set(i64::try_from(depth).unwrap_or(i64::MAX));
        self.waiting_for_cloud.set(i64::try_from(waiting_for_cloud).unwrap_or(i64::MAX));
    }

    /// Registers the metrics with their help texts. `labels_nodes`: whether this process labels Nodes.
    pub fn registry(&self, labels_nodes: bool) -> Registry {
        let mut registry = Registry::default();
        let of_controller = registry.sub_registry_with_label(("controller".into(), NODE.into()));
        of_controller.register(
            "controller_runtime_reconcile",
            "Reconciles of Nodes, by result",
            self.reconciled.clone(),
        );
        of_controller.register(
            "controller_runtime_reconcile_errors",
            "Reconciles of Nodes that failed",
            self.errors.clone(),
        );
        of_controller.register(
            "controller_runtime_reconcile_time_seconds",
            "Duration of the reconcile of a Node",
            self.seconds.clone(),
        );
        of_controller
            .sub_registry_with_labels(
                [("name", NODE), ("priority", "0")]
                    .into_iter()
                    .map(|(label, value)| (label.into(), value.into())),
            )
            .register("workqueue_depth", "Nodes that wait for a reconcile", self.depth.clone());
        registry.register(
            "kops_agent_node_refusals",
            "Rejected Nodes, which get no labels, by reason",
            self.refusals.clone(),
        );
        registry.register(
            "kops_agent_nodes_waiting_for_cloud",
            "Nodes whose reconcile waits, because the cloud does not answer",
            self.waiting_for_cloud.clone(),
        );
        registry.register("kops_agent_node_patches", "Patches of Nodes", self.patches.clone());
        registry.register(
            "kops_agent_node_labels_left_out",
            "Labels that Nodes did not get, because they are invalid or the API server rejects them",
            self.labels_left_out.clone(),
        );
        registry.register(
            "kops_agent_instance_cache_hits",
            "Nodes whose instance was in the cache",
            self.cache_hits.clone(),
        );
        // Only a process that labels Nodes has the leader metric. If other processes had this metric, an alert rule would report that none
        // of them leads.
        if labels_nodes {
            registry.sub_registry_with_label(("name".into(), lease::NAME.into())).register(
                "leader_election_master_status",
                "Whether this process holds the Lease kops-controller-leader",
                self.leads.clone(),
            );
        }
        registry.register(
            "kops_agent_left_to_upstream",
            "Whether this process does nothing, because its configuration needs kOps' own kops-controller",
            self.left_to_upstream.clone(),
        );
        registry.register(
            "kops_agent_state_store_readable",
            "Whether the last read of the state store succeeded",
            self.store_is_readable.clone(),
        );
        registry.register("kops_agent_cloud_calls", "Calls to the cloud", self.cloud_calls.metric());
        registry.register(
            "kops_agent_rollout_nodes",
            "Nodes of the rollout that this process leads, by instance group and state",
            self.rollout.nodes.clone(),
        );
        registry.register(
            "kops_agent_rollout_policy_refused",
            "Whether the policy of rollouts is not valid, as seen by the process that leads",
            self.rollout.policy_refused.clone(),
        );
        self.bootstrap.register(&mut registry);
        register_build(&mut registry);
        registry
    }
}

/// Adds the version and the commit of this program.
pub fn register_build(registry: &mut Registry) {
    let Version { version, commit } = of_this_program();
    let build = Info::new(vec![("version", version), ("commit", commit)]);
    registry.register(
        "kops_agent_build",
        "The version of this program, and the commit of which it was built",
        build,
    );
}

/// Encodes the metrics as text (OpenMetrics).
pub fn text(registry: &Registry) -> String {
    let mut text = String::new();
    // Ignore the result, because writing to a String cannot fail.
    let _ = encode(&mut text, registry);
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use kops_agent_cloud::calls::Outcome;
    use kops_agent_cluster::rollout::GroupStatus;
    use kops_agent_tests::metrics::forms;

    #[test]
    fn metrics_have_controller_runtimes_names_and_labels() {
        let metrics = Metrics::new();
        metrics.reconciled(Reconciled::Success, Duration::from_millis(3));
        metrics.reconciled(Reconciled::Error, Duration::from_secs(3));
        metrics.refused("InstanceNotFound");
        metrics.queued(7, 3);
        let text = text(&metrics.registry(true));
        for line in [
            r#"controller_runtime_reconcile_total{controller="node",result="success"} 1"#,
            r#"controller_runtime_reconcile_errors_total{controller="node"} 1"#,
            r#"controller_runtime_reconcile_time_seconds_bucket{controller="node",le="0.005"} 1"#,
            r#"workqueue_depth{controller="node",name="node",priority="0"} 7"#,
            r#"leader_election_master_status{name="kops-controller-leader"} 0"#,
            "kops_agent_nodes_waiting_for_cloud 3",
            r#"kops_agent_node_refusals_total{reason="InstanceNotFound"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
    }

    /// The names of metrics in a text.
    fn names(text: &str) -> BTreeSet<&str> {
        const FAMILIES: [&str; 4] = ["controller_runtime_", "workqueue_", "leader_election_", "kops_agent_"];
        let words = text.split(|byte: char| !byte.is_ascii_alphanumeric() && byte != '_');
        words.filter(|word| FAMILIES.iter().any(|family| word.starts_with(family))).collect()
    }

    /// The text of control-plane mode's metrics, in which each metric has a value.
    fn every_metric() -> String {
        let metrics = Metrics::new();
        metrics.reconciled(Reconciled::Error, Duration::from_secs(3));
        metrics.refused("InstanceNotFound");
        metrics.bootstrap.count_bootstrap("Granted", true, Duration::from_secs(1));
        metrics.bootstrap.renewed("Granted", true);
        metrics.bootstrap.paced("Granted", true);
        metrics.cloud_calls.count("ec2", "DescribeInstances", Outcome::Success);
        let groups = [("nodes".to_owned(), GroupStatus::default())].into();
        metrics.rollout.show(&Status { groups, ..Status::default() }, true);
        text(&metrics.registry(true))
    }

    /// docs/support-policy.md promises these names, types and labels. For a new metric, add a line to its file in `metrics/`.
    #[test]
    fn metrics_keep_their_forms() {
        assert_eq!(forms(&every_metric()), include_str!("metrics/controller.txt"));
        assert_eq!(forms(&crate::addons::every_metric()), include_str!("metrics/addons.txt"));
    }

    #[test]
    fn dashboard_and_rules_query_only_existing_metrics() {
        let of_controller = every_metric();
        let of_addons = crate::addons::every_metric();
        for served in [&of_controller, &of_addons] {
            let build = served.lines().find(|line| line.starts_with("kops_agent_build_info{")).unwrap();
            assert!(build.contains(&format!("version=\"{}\"", env!("CARGO_PKG_VERSION"))), "{build}");
        }
        let of_nodes = include_str!("../../node/src/metrics.rs");
        let known: BTreeSet<&str> =
            [&of_controller, &of_addons, of_nodes].into_iter().flat_map(names).collect();
        for asked in [
            include_str!("../../../packaging/grafana/kops-agent.json"),
            include_str!("../../../packaging/grafana/kops-agent-fleet.json"),
            include_str!("../../../packaging/prometheus/rules.yaml"),
        ] {
            let unknown: Vec<_> = names(asked).difference(&known).copied().collect();
            assert_eq!(unknown, [""; 0]);
            assert!(names(asked).len() > 8, "they are not found");
        }
    }
}
