//! A summary of the Nodes of a cluster: which configuration each node runs, and whether its group has a newer configuration.
//!
//! The newest configuration of a group follows from times alone, without the state store: new machines get the newest configuration, and
//! running machines keep their configurations. So the newest configuration is the configuration with the latest time at which a node
//! converged to it, or found itself superseded by it. A kubelet can write any time into its own Node, so times in the future do not count.

use std::collections::BTreeMap;

use serde::Serialize;
use time::{Duration, OffsetDateTime};

use super::authorities::read_authorities;
use super::certificate::{FirstCertificate, SeenCertificate};
use super::message::{Configuration, Told, is_hash};
use super::program::reported_program;
use super::reboot::reboot_required;
use kops_agent_spec::parse_timestamp;

const TRUE: &str = "True";
/// Maximum length of a version, in characters. A kubelet can write any value into its own Node.
const LONGEST_VERSION: usize = 100;
/// How far a node's clock may be ahead of the clock of the machine that makes the summary.
pub(super) const CLOCK_SKEW: Duration = Duration::minutes(5);

/// The fields of a Node for the summary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenNode {
    pub name: String,
    /// The instance group in the Node's label; empty if the Node has no such label.
    pub group: String,
    pub kubelet_version: String,
    /// The status of the Node's condition `Ready`; empty if the Node has no such condition.
    pub ready: String,
    /// The Node's condition `KopsConfigured`; `None` if the Node has no such condition.
    pub configured: Option<SeenCondition>,
    /// The Node's annotation with the certificate that expires first; empty if the Node has no such annotation.
    pub first_certificate: String,
    /// The Node's annotation with the agent's version; empty if the Node has no such annotation.
    pub agent_version: String,
    /// The Node's annotation with the change to the next configuration; empty if the Node has no such annotation.
    pub next: String,
    /// The Node's annotation with the configuration in the user-data; empty if the Node has no such annotation.
    pub followed_from: String,
    /// The Node's annotation with the observed machine; empty if the Node has no such annotation.
    pub machine: String,
    /// The Node's annotation with the digest of the trusted authorities; empty if the Node has no such annotation.
    pub authorities: String,
    /// The architecture that the node's kubelet reports, such as `amd64`.
    pub architecture: String,
    /// The boot ID that the node's kubelet reports.
    pub boot_id: String,
    /// The Node's annotation with the report about a reboot; empty if the Node has no such annotation.
    pub reboot: String,
    /// The Node's annotation with the report about the agent's program; empty if the Node has no such annotation.
    pub program: String,
    /// The Node's annotation with the outcome of the last order that a rollout gave to the node; empty if the Node has no such annotation.
    pub outcome: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenCondition {
    pub status: String,
    pub reason: String,
    pub message: String,
    /// When the node last reported the condition, in RFC 3339.
    pub last_heartbeat_time: String,
}

/// The summary of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub name: String,
    /// The instance group in the Node's label; empty if the Node has no such label.
    pub group: String,
    /// The status of the Node's condition `Ready`; empty if the Node has no such condition.
    pub ready: String,
    /// The status of the Node's condition `KopsConfigured`; empty if the Node has no such condition.
    pub configured: String,
    pub reason: String,
    /// The configuration that the node runs; `None` if the node has not reported a configuration.
    pub runs: Option<Configuration>,
    /// The hash of the group's newer configuration; `None` if the node runs the newest configuration.
    pub superseded_by: Option<String>,
    /// The node's problem; empty if there is none.
    pub problem: String,
    /// When the node last reported, in RFC 3339; empty if it has never reported.
    pub told_at: String,
    /// The certificate that expires first; `None` if the node has not reported a certificate.
    pub first_certificate: Option<SeenCertificate>,
    pub kubelet_version: String,
    /// The version of the agent on the node; empty if the node has not reported a version.
    pub agent_version: String,
    /// SHA-256 of the agent's program; `None` if the node has not reported it.
    pub agent_sha256: Option<String>,
    /// `NodeupConfigHash` in the node's user-data, if the node has since taken a different configuration of its group.
    pub followed_from: Option<String>,
    /// The digest of the `kubernetes-ca` authorities that the node trusts; `None` if the node has not reported it.
    pub authorities: Option<String>,
    /// Why the node requires a reboot; empty if it requires none. `None` if the node has not reported this since its last boot.
    pub reboot_required: Option<Vec<String>>,
}

impl Row {
    /// Whether the node is ready and configured, and runs the newest configuration of its group. A reported certificate that has expired or
    /// expires soon also makes the node unhealthy.
    pub fn is_healthy(&self) -> bool {
        let ends_soon = self.first_certificate.as_ref().is_some_and(SeenCertificate::ends_soon);
        self.ready == TRUE && self.configured == TRUE && self.superseded_by.is_none() && !ends_soon
    }
}

/// The rows of all nodes, sorted by group and name, as of `now`.
pub fn rows(nodes: Vec<SeenNode>, now: OffsetDateTime) -> Vec<Row> {
    let mut told: Vec<(SeenNode, Told)> = nodes
        .into_iter()
        .map(|node| {
            let told = node.configured.as_ref().map(|condition| Told::read(&condition.message));
            (node, told.unwrap_or_default())
        })
        .collect();
    told.sort_by(|(a, _), (b, _)| (&a.group, &a.name).cmp(&(&b.group, &b.name)));
    let newest = newest(&told, now);
    told.iter().map(|(node, told)| row(node, told, newest.get(node.group.as_str()).copied(), now)).collect()
}

/// The newest configuration of each group. Nodes without a group are not compared with each other.
fn newest(told: &[(SeenNode, Told)], now: OffsetDateTime) -> BTreeMap<&str, &Configuration> {
    let mut newest: BTreeMap<&str, &Configuration> = BTreeMap::new();
    for (node, told) in told.iter().filter(|(node, _)| !node.group.is_empty()) {
        for configuration in told.runs.iter().chain(&told.superseded_by) {
            let known = newest.entry(&node.group).or_insert(configuration);
            if (since(configuration, now), &configuration.hash) > (since(known, now), &known.hash) {
                *known = configuration;
            }
        }
    }
    newest
}

/// The `since` time of a configuration. `None` if the time is missing, invalid or in the future. `None` sorts before all times.
fn since(configuration: &Configuration, now: OffsetDateTime) -> Option<OffsetDateTime> {
    let since = parse_timestamp(&configuration.since)?;
    (since <= now + CLOCK_SKEW).then_some(since)
}

fn row(node: &SeenNode, told: &Told, newest: Option<&Configuration>, now: OffsetDateTime) -> Row {
    let SeenNode { name, group, kubelet_version, ready, configured, first_certificate, .. } = node.clone();
    let SeenCondition { status, reason, last_heartbeat_time, .. } = configured.unwrap_or_default();
    let superseded_by = told.runs.as_ref().and_then(|runs| {
        let newer = told.superseded_by.as_ref().or(newest)?;
        (newer.hash != runs.hash).then(|| newer.hash.clone())
    });
    Row {
        name,
        group,
        ready,
        configured: status,
        reason,
        runs: told.runs.clone(),
        superseded_by,
        problem: told.problem.clone(),
        told_at: last_heartbeat_time,
        first_certificate: FirstCertificate::read(&first_certificate)
            .map(|certificate| certificate.seen(now)),
        kubelet_version,
        agent_version: node.agent_version.chars().take(LONGEST_VERSION).collect(),
        agent_sha256: reported_program(&node.program, &node.agent_version).map(|program| program.sha256),
        followed_from: Some(node.followed_from.clone()).filter(|hash| is_hash(hash)),
        authorities: read_authorities(&node.authorities),
        reboot_required: reboot_required(&node.reboot, &node.boot_id),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NodeReport, ProgramReport, RebootReport, Trouble};
    use super::*;

    fn rows(nodes: Vec<SeenNode>) -> Vec<Row> {
        super::rows(nodes, OffsetDateTime::UNIX_EPOCH)
    }

    fn configuration(hash: &str, since: &str) -> Configuration {
        Configuration { hash: hash.into(), since: since.into() }
    }

    fn runs(hash: &str, since: &str) -> NodeReport {
        NodeReport { runs: Some(configuration(hash, since)), ..NodeReport::default() }
    }

    fn node(group: &str, name: &str, report: &NodeReport) -> SeenNode {
        let statement = report.statement();
        let status = if statement.is_configured { "True" } else { "False" };
        let condition = SeenCondition {
            status: status.into(),
            reason: statement.reason.into(),
            message: statement.message,
            last_heartbeat_time: "2026-11-26T00:00:00Z".into(),
        };
        let configured = Some(condition);
        SeenNode {
            name: name.into(),
            group: group.into(),
            ready: "True".into(),
            configured,
            ..SeenNode::default()
        }
    }

    /// The name of each row, and the hash of the configuration that supersedes the row's configuration.
    fn superseded(nodes: Vec<SeenNode>) -> Vec<(String, Option<String>)> {
        rows(nodes).into_iter().map(|row| (row.name, row.superseded_by)).collect()
    }

    #[test]
    fn a_node_is_superseded_by_the_newest_configuration_of_its_group() {
        let nodes = vec![
            node("nodes", "new", &runs("b=", "1969-02-01T00:00:00Z")),
            node("nodes", "old", &runs("a=", "1969-01-01T00:00:00Z")),
            // The newest configuration of one group does not supersede the configuration of a different group.
            node("gpu", "g", &runs("c=", "1968-01-01T00:00:00Z")),
        ];
        let expected = [("g", None), ("new", None), ("old", Some("b="))]
            .map(|(name, by)| (name.to_owned(), by.map(str::to_owned)));
        assert_eq!(superseded(nodes), expected);
    }

    #[test]
    fn machines_that_start_after_a_return_to_an_old_configuration_make_it_the_newest() {
        let nodes = vec![
            node("nodes", "a1", &runs("a=", "1969-01-01T00:00:00Z")),
            node("nodes", "a2", &runs("a=", "1969-03-01T00:00:00Z")),
            node("nodes", "b", &runs("b=", "1969-02-01T00:00:00Z")),
        ];
        let expected = [("a1", None), ("a2", None), ("b", Some("a="))]
            .map(|(name, by)| (name.to_owned(), by.map(str::to_owned)));
        assert_eq!(superseded(nodes), expected);
    }

    #[test]
    fn a_newer_configuration_known_to_one_node_holds_for_its_group() {
        let by = Some(configuration("b=", "1969-02-01T00:00:00Z"));
        let nodes = vec![
            node("nodes", "a1", &NodeReport { superseded_by: by, ..runs("a=", "1969-01-01T00:00:00Z") }),
            node("nodes", "a2", &runs("a=", "1969-01-02T00:00:00Z")),
        ];
        assert!(
            rows(nodes).iter().all(|row| row.superseded_by.as_deref() == Some("b=") && !row.is_healthy())
        );
    }

    #[test]
    fn no_configuration_is_newer_than_now() {
        for since in ["2038-01-19T03:14:07Z", "1970-01-01T00:05:01Z", "zzzz"] {
            let nodes = vec![
                node("nodes", "ahead", &runs("b=", since)),
                node("nodes", "newest", &runs("a=", "1969-03-01T00:00:00Z")),
            ];
            let expected = [("ahead", Some("a=")), ("newest", None)]
                .map(|(name, by)| (name.to_owned(), by.map(str::to_owned)));
            assert_eq!(superseded(nodes), expected, "{since}");
        }
        // A node's clock may be ahead by up to `CLOCK_SKEW`, so a time that is 4 minutes ahead is accepted.
        let nodes = vec![
            node("nodes", "ahead", &runs("b=", "1970-01-01T00:04:00Z")),
            node("nodes", "old", &runs("a=", "1969-03-01T00:00:00Z")),
        ];
        assert_eq!(superseded(nodes)[1].1.as_deref(), Some("b="));
    }

    #[test]
    fn nodes_without_a_group_have_nothing_in_common() {
        let nodes = vec![
            node("", "a", &runs("a=", "1969-01-01T00:00:00Z")),
            node("", "b", &runs("b=", "1969-01-02T00:00:00Z")),
        ];
        assert!(rows(nodes).iter().all(Row::is_healthy));
    }

    #[test]
    fn a_node_is_healthy_only_if_ready_configured_and_with_valid_certificates() {
        let well = node("nodes", "a", &runs("a=", "1969-01-01T00:00:00Z"));
        assert!(rows(vec![well.clone()])[0].is_healthy());
        let renewed = SeenNode { first_certificate: "1970-02-07T00:00:00Z kubelet".into(), ..well.clone() };
        assert!(rows(vec![renewed])[0].is_healthy());
        let untold = SeenNode { configured: None, ..well.clone() };
        let unready = SeenNode { ready: "Unknown".into(), ..well.clone() };
        let trouble = Some(Trouble::RunFailed { at: "t".into(), problem: "no network".into() });
        let failed = node("nodes", "a", &NodeReport { trouble, ..runs("a=", "1969-01-01T00:00:00Z") });
        let expiring = SeenNode { first_certificate: "1970-01-07T00:00:00Z kubelet".into(), ..well.clone() };
        for other in [untold, unready, failed, expiring] {
            assert!(!rows(vec![other.clone()])[0].is_healthy(), "{other:?}");
        }
    }

    #[test]
    fn a_row_has_every_reported_value() {
        let trouble = Some(Trouble::RunFailed { at: "t".into(), problem: "no network".into() });
        let seen = node("nodes", "a", &NodeReport { trouble, ..runs("a=", "1969-01-01T00:00:00Z") });
        let first_certificate = "1970-01-29T01:00:00Z kubelet".into();
        let agent_version = "0.1.0 (abc)".to_owned();
        let seen = SeenNode {
            kubelet_version: "v1.36.0".into(),
            first_certificate,
            agent_version,
            followed_from: "b=".into(),
            authorities: "0".repeat(64),
            boot_id: "b1".into(),
            reboot: RebootReport::new("b1", &[]).value().unwrap_or_default(),
            program: ProgramReport::new("0.1.0 (abc)", &"a".repeat(64)).value().unwrap_or_default(),
            ..seen
        };
        let row = rows(vec![seen]).remove(0);
        let expected = Row {
            name: "a".into(),
            group: "nodes".into(),
            ready: "True".into(),
            configured: "False".into(),
            reason: "RunFailed".into(),
            runs: Some(configuration("a=", "1969-01-01T00:00:00Z")),
            superseded_by: None,
            problem: "the run of t failed: no network".into(),
            told_at: "2026-11-26T00:00:00Z".into(),
            first_certificate: Some(SeenCertificate {
                name: "kubelet".into(),
                expires: "1970-01-29T01:00:00Z".into(),
                days_left: 28,
            }),
            kubelet_version: "v1.36.0".into(),
            agent_version: "0.1.0 (abc)".into(),
            agent_sha256: Some("a".repeat(64)),
            followed_from: Some("b=".into()),
            authorities: Some("0".repeat(64)),
            reboot_required: Some(Vec::new()),
        };
        assert_eq!(row, expected);
    }
}
