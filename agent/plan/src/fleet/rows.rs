//! What follows from the Nodes of a cluster: which configuration each runs, and whether its group has a newer one by now.
//!
//! Which configuration of a group is the newest is told by times alone, with no look at the state store: machines that start get
//! the newest, and those that run keep theirs. So it is the one that was converged to last, or by which a node knows that it is
//! superseded. What any kubelet writes into its own Node is believed of its group only as far as it can be: nothing is newer than
//! now.

use std::collections::BTreeMap;

use serde::Serialize;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use super::certificate::{FirstCertificate, SeenCertificate};
use super::message::{Configuration, Told};

/// The status of a condition that holds.
const TRUE: &str = "True";
/// Any kubelet may write what it likes into its own Node. In characters.
const LONGEST_VERSION: usize = 100;
/// How far the clock of a machine may be ahead of this one's.
const CLOCK_SKEW: Duration = Duration::minutes(5);

/// What is looked at of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenNode {
    pub name: String,
    /// Its instance group; empty where it has no label of one.
    pub group: String,
    /// The version of its kubelet.
    pub kubelet_version: String,
    /// The status of its condition `Ready`; empty where it has none.
    pub ready: String,
    /// Its condition `KopsConfigured`; `None` where it has none.
    pub configured: Option<SeenCondition>,
    /// Its annotation of the certificate that expires first; empty where it has none.
    pub first_certificate: String,
    /// Its annotation of the agent's version; empty where it has none.
    pub agent_version: String,
}

/// A condition of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenCondition {
    pub status: String,
    pub reason: String,
    pub message: String,
    /// When it was told last, in RFC 3339.
    pub last_heartbeat_time: String,
}

/// A node among the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub name: String,
    /// Its instance group; empty where its Node has no label of one.
    pub group: String,
    /// The status of the Node's condition `Ready`; empty where it has none.
    pub ready: String,
    /// The status of the Node's condition `KopsConfigured`; empty where it has none.
    pub configured: String,
    pub reason: String,
    /// The configuration that the node runs; `None` where it has not told of one.
    pub runs: Option<Configuration>,
    /// The hash of its group's newer configuration; `None` where it runs the newest.
    pub superseded_by: Option<String>,
    /// What is wrong with it; empty where nothing is.
    pub problem: String,
    /// When it told of itself last, in RFC 3339; empty where it never has.
    pub told_at: String,
    /// Which of its certificates expires first; `None` where it has not told of one.
    pub first_certificate: Option<SeenCertificate>,
    /// The version of its kubelet.
    pub kubelet_version: String,
    /// The version of the agent on it; empty where it has not told of one.
    pub agent_version: String,
}

impl Row {
    /// Whether the node is ready, runs the newest configuration of its group, and has no certificate that has expired or is about
    /// to, as far as is told.
    pub fn is_well(&self) -> bool {
        let ends_soon = self.first_certificate.as_ref().is_some_and(SeenCertificate::ends_soon);
        self.ready == TRUE && self.configured == TRUE && self.superseded_by.is_none() && !ends_soon
    }
}

/// The nodes among each other, by group and name, as they are at this time.
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

/// The newest configuration of each group. Nodes without a group have nothing in common.
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

/// Since when a configuration is what is told of it; `None`, which is before all times, where that is not told or cannot be.
fn since(configuration: &Configuration, now: OffsetDateTime) -> Option<OffsetDateTime> {
    let since = OffsetDateTime::parse(&configuration.since, &Rfc3339).ok()?;
    (since <= now + CLOCK_SKEW).then_some(since)
}

fn row(node: &SeenNode, told: &Told, newest: Option<&Configuration>, now: OffsetDateTime) -> Row {
    let SeenNode { name, group, kubelet_version, ready, configured, first_certificate, agent_version } =
        node.clone();
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
        agent_version: agent_version.chars().take(LONGEST_VERSION).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NodeReport, Trouble};
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

    /// Names of rows, and by what each is superseded.
    fn superseded(nodes: Vec<SeenNode>) -> Vec<(String, Option<String>)> {
        rows(nodes).into_iter().map(|row| (row.name, row.superseded_by)).collect()
    }

    #[test]
    fn a_node_is_superseded_by_what_its_group_has_converged_to_last() {
        let nodes = vec![
            node("nodes", "new", &runs("b=", "1969-02-01T00:00:00Z")),
            node("nodes", "old", &runs("a=", "1969-01-01T00:00:00Z")),
            // Another group has another configuration.
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
    fn what_one_node_knows_holds_for_its_group() {
        let by = Some(configuration("b=", "1969-02-01T00:00:00Z"));
        let nodes = vec![
            node("nodes", "a1", &NodeReport { superseded_by: by, ..runs("a=", "1969-01-01T00:00:00Z") }),
            node("nodes", "a2", &runs("a=", "1969-01-02T00:00:00Z")),
        ];
        assert!(rows(nodes).iter().all(|row| row.superseded_by.as_deref() == Some("b=") && !row.is_well()));
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
        // A clock may be somewhat ahead.
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
        assert!(rows(nodes).iter().all(Row::is_well));
    }

    #[test]
    fn a_node_is_well_only_where_it_says_so() {
        let well = node("nodes", "a", &runs("a=", "1969-01-01T00:00:00Z"));
        assert!(rows(vec![well.clone()])[0].is_well());
        let renewed = SeenNode { first_certificate: "1970-02-07T00:00:00Z kubelet".into(), ..well.clone() };
        assert!(rows(vec![renewed])[0].is_well());
        let untold = SeenNode { configured: None, ..well.clone() };
        let unready = SeenNode { ready: "Unknown".into(), ..well.clone() };
        let trouble = Some(Trouble::RunFailed { at: "t".into(), problem: "no network".into() });
        let failed = node("nodes", "a", &NodeReport { trouble, ..runs("a=", "1969-01-01T00:00:00Z") });
        let expiring = SeenNode { first_certificate: "1970-01-07T00:00:00Z kubelet".into(), ..well.clone() };
        for other in [untold, unready, failed, expiring] {
            assert!(!rows(vec![other.clone()])[0].is_well(), "{other:?}");
        }
    }

    #[test]
    fn a_row_has_all_that_is_told() {
        let trouble = Some(Trouble::RunFailed { at: "t".into(), problem: "no network".into() });
        let seen = node("nodes", "a", &NodeReport { trouble, ..runs("a=", "1969-01-01T00:00:00Z") });
        let first_certificate = "1970-01-29T01:00:00Z kubelet".into();
        let agent_version = "0.1.0 (abc)".to_owned();
        let seen = SeenNode { kubelet_version: "v1.36.0".into(), first_certificate, agent_version, ..seen };
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
        };
        assert_eq!(row, expected);
    }
}
