//! The metrics of a node, in the exposition format of Prometheus, for a file of node_exporter's textfile collector.

use std::fmt::Write as _;
use std::time::Duration;

use kops_agent_host::{Host, Status};
use kops_agent_plan::timeline::Timelines;
use kops_agent_process::version::{Version, of_this_program};

/// The metrics of a node with this status. Unreadable parts are left out, so that an unhealthy machine has metrics too.
pub fn of_node(host: &Host, status: &Status) -> String {
    let applied = host.applied().unwrap_or_default();
    let group = applied.map(|applied| [applied.cluster, applied.instance_group]);
    of_status(status, group.as_ref(), &host.timelines().unwrap_or_default())
}

/// The metrics of a node with this status. `group` is the node's cluster and instance group.
pub fn of_status(status: &Status, group: Option<&[String; 2]>, timelines: &Timelines) -> String {
    let mut text = String::new();
    let mut metric = |name: &str, help: &str, values: Vec<(String, i64)>| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in values {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let pair = |name: &str, value: &str| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    };
    let label = |name: &str, value: &str| format!("{{{}}}", pair(name, value));
    metric(
        "kops_agent_converged",
        "Whether the node has converged, has no drift, and its units run. A failed run that changed nothing leaves it 1.",
        vec![(label("config_hash", &status.config_hash), i64::from(status.converged))],
    );
    metric(
        "kops_agent_never_converged",
        "Whether no run of the agent has finished on this machine yet.",
        vec![(String::new(), i64::from(status.never_converged))],
    );
    metric(
        "kops_agent_last_run_failed",
        "Whether the last run of the agent failed.",
        vec![(String::new(), i64::from(status.failure.is_some()))],
    );
    metric(
        "kops_agent_rolled_back",
        "Whether a change was rolled back and the cluster's configuration has not changed since.",
        vec![(String::new(), i64::from(status.rolled_back.is_some()))],
    );
    metric(
        "kops_agent_superseded",
        "Whether the cluster has a newer configuration for the replacement of this machine.",
        vec![(String::new(), i64::from(status.superseded.is_some()))],
    );
    metric(
        "kops_agent_changed_resources",
        "The number of resources that differ from their last applied state.",
        vec![(String::new(), i64::try_from(status.changed.len()).unwrap_or(i64::MAX))],
    );
    let units = status.units.iter().map(|unit| (label("unit", &unit.name), i64::from(unit.running)));
    metric("kops_agent_unit_running", "Whether a unit of the agent runs.", units.collect());
    let expiries = status.certificates.iter();
    let expiries =
        expiries.filter_map(|certificate| Some((label("path", &certificate.path), certificate.expires?)));
    metric(
        "kops_agent_certificate_expires_seconds",
        "When a certificate of the node expires, in seconds since 1970.",
        expiries.collect(),
    );
    let of_group = group.map(|[cluster, group]| {
        (format!("{{{},{}}}", pair("kops_cluster", cluster), pair("instance_group", group)), 1)
    });
    metric(
        "kops_agent_node_info",
        "The cluster and the instance group of the node in the last applied configuration.",
        of_group.into_iter().collect(),
    );
    let Version { version, commit } = of_this_program();
    metric(
        "kops_agent_build_info",
        "The version and the commit of the agent that wrote these metrics.",
        vec![(format!("{{{},{}}}", pair("version", version), pair("commit", commit)), 1)],
    );
    let _ = writeln!(
        text,
        "# HELP kops_agent_run_duration_seconds The duration of the last run of the agent, and of the last run that changed something.\n\
         # TYPE kops_agent_run_duration_seconds gauge"
    );
    let changing = timelines.runs.iter().find(|run| run.changes > 0);
    for (which, run) in [("last", timelines.runs.first()), ("last_with_changes", changing)] {
        let Some(run) = run else { continue };
        let took = Duration::from_micros(run.took_us).as_secs_f64();
        let _ = writeln!(text, "kops_agent_run_duration_seconds{} {took:.3}", label("run", which));
    }
    text
}

#[cfg(test)]
mod tests {
    use kops_agent_plan::timeline::Timeline;

    use super::*;
    use crate::status::tests::status;

    #[test]
    fn prometheus_reads_it() {
        let group = ["c.example.com", "nodes"].map(str::to_owned);
        let run = |took_us: u64, changes: usize| Timeline {
            ended_at: "now".into(),
            took_us,
            floor_us: 0,
            changes,
            succeeded: true,
            steps: vec![],
        };
        let timelines = Timelines { runs: vec![run(74_900, 0), run(4_634_000, 80)] };
        let text = of_status(&status(), Some(&group), &timelines);
        for line in [
            "kops_agent_converged{config_hash=\"abc=\"} 0",
            "kops_agent_last_run_failed 1",
            "kops_agent_unit_running{unit=\"containerd.service\"} 1",
            "kops_agent_certificate_expires_seconds{path=\"/srv/a \\\"b\\\".crt\"} 100",
            "kops_agent_node_info{kops_cluster=\"c.example.com\",instance_group=\"nodes\"} 1",
            &format!(
                "kops_agent_build_info{{version=\"{}\",commit=\"development\"}} 1",
                env!("CARGO_PKG_VERSION")
            ),
            "kops_agent_run_duration_seconds{run=\"last\"} 0.075",
            "kops_agent_run_duration_seconds{run=\"last_with_changes\"} 4.634",
        ] {
            assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
        }
        // docs/support-policy.md promises these names, types and labels. Each new metric needs a line in
        // metrics/node.txt.
        assert_eq!(kops_agent_tests::metrics::forms(&text), include_str!("metrics/node.txt"));
    }
}
