//! The canaries in the status.

use super::*;

fn canaries<'a>(cluster: &'a Cluster, group: &str) -> (Vec<&'a str>, usize) {
    let group = &cluster.status.groups[group];
    (group.canaries.iter().map(String::as_str).collect(), group.canaries_left)
}

#[test]
fn the_status_names_the_canaries_and_counts_those_that_are_left() {
    let mut cluster = Cluster::new(&[("masters", 1), ("a", 4), ("b", 1)]);
    cluster.rollout.canary = 2;
    assert_eq!(cluster.step(), ["masters-00"]);
    assert_eq!(["masters", "a", "b"].map(|group| canaries(&cluster, group).1), [0, 2, 1]);
    cluster.act("masters-00", "");
    assert_eq!(cluster.step(), ["a-00", "b-00"]);
    assert_eq!(canaries(&cluster, "a"), (vec!["a-00"], 2));
    cluster.act("a-00", "");
    assert_eq!(cluster.step(), ["a-01"]);
    assert_eq!(canaries(&cluster, "a"), (vec!["a-00", "a-01"], 1));
    cluster.act("a-01", "");
    cluster.act("b-00", "");
    assert_eq!(cluster.step(), ["a-02"]);
    assert_eq!(canaries(&cluster, "a"), (vec!["a-00", "a-01"], 0));
    assert_eq!(canaries(&cluster, "masters"), (vec![], 0), "control planes have no canaries");

    // For a new configuration, the group needs new canaries.
    cluster.seen.current.insert("a".into(), Ok("c=".into()));
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(canaries(&cluster, "a"), (vec![], 2));
}

#[test]
fn a_canary_of_another_version_is_named_also_if_the_last_status_has_no_groups() {
    let mut cluster = Cluster::new(&[("a", 2)]);
    cluster.of_name("a-01").canary = Canary::Passed;
    cluster.step();
    assert_eq!(canaries(&cluster, "a"), (vec!["a-01"], 0));
}

#[test]
fn the_status_names_few_canaries() {
    let mut cluster = Cluster::new(&[("a", 50)]);
    cluster.rollout.canary = 40;
    cluster.rollout.max_unavailable = MaxUnavailable::Percent(100);
    assert_eq!(cluster.step().len(), 40);
    let (named, left) = canaries(&cluster, "a");
    assert_eq!((named.len(), left), (MOST_NAMED, 40));
}
