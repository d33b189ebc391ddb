#![allow(clippy::unwrap_used)]
use time::Duration;

use super::super::pods::Container;
use super::super::testing::Cluster;
use super::super::wanted::MaxUnavailable;
use super::super::{Boots, Decision, MOST_BOOTS, Phase, PolicyStatus, Rollout, Status, decide};
use super::*;

/// A cluster of two large groups, with long names of nodes, and with containers that have restarted.
fn large() -> Cluster {
    let mut cluster = Cluster::new(&[("a", 1500), ("b", 1500)]);
    cluster.rollout.max_unavailable = MaxUnavailable::Percent(50);
    cluster.rollout.check_pods_after = 60;
    for member in &mut cluster.members {
        member.node = format!("i-0123456789abcdef0.eu-central-1.compute.internal.{}", member.node);
        let pods = (0..30).map(|pod| {
            (format!("kube-system/{pod}/{}", member.node), Container { restarts: 1, ..Container::default() })
        });
        cluster.containers.insert(member.node.clone(), Ok(pods.collect()));
        member.authorities = Some("0".repeat(64));
    }
    cluster.seen.authorities = ["a", "b"].map(|group| (group.to_owned(), "1".repeat(64))).into();
    cluster
}

fn size(part: &impl serde::Serialize) -> usize {
    serde_json::to_string(part).unwrap().len()
}

/// The status contains every order, and digests of all restarted containers. A ConfigMap has at most 1 MiB.
#[test]
fn the_status_of_the_largest_rollout_fits_into_a_config_map() {
    let mut cluster = large();
    let begun = cluster.step();
    let of_a = begun.iter().filter(|node| node.contains(".a-")).count();
    assert_eq!((begun.len(), of_a), (MOST_AT_WORK, MOST_AT_WORK / 2), "the groups take turns");
    let text = serde_json::to_string(&cluster.status).unwrap();
    assert!(text.len() < 1 << 20, "{}", text.len());

    let nodes: Vec<String> = cluster.status.ordered.keys().cloned().collect();
    cluster.act(&nodes[0], "");
    cluster.step();
    cluster.now += Duration::seconds(61);
    assert_eq!(cluster.step().len(), 1);
    nodes[1..].iter().take(MOST_AT_WORK - 1).for_each(|node| cluster.act(node, "kubelet is dead"));
    cluster.step();
    let text = serde_json::to_string(&cluster.status).unwrap();
    assert!(text.len() < 1 << 20, "{}", text.len());
}

/// Besides the status, the ConfigMap contains the names of the nodes to reboot, and the policy's failed orders.
#[test]
fn all_keys_of_the_config_map_fit_into_it_together() {
    const POLICY: &str = "cluster: {follow: automatic, reboot: automatic, maxUnavailable: 5%}";
    let mut cluster = large();
    cluster.seen.listed = cluster.containers.clone();
    cluster.policy = cluster.policy.with_policy(POLICY);
    // The policy first orders configurations, and all these orders fail. Then the policy orders reboots, and they fail, too.
    for _ in 0..2 {
        let actions = cluster.step_all(None);
        assert_eq!(actions.orders.len(), 150);
        cluster.policy = actions.policy;
        actions.orders.keys().for_each(|node| cluster.act(node, "kubelet is dead"));
        cluster.policy = cluster.step_all(None).policy;
        cluster.members.iter_mut().for_each(|member| member.requires_reboot = true);
    }
    let PolicyStatus { status, reboots, .. } = &cluster.policy;
    assert_eq!((status.failed.len(), reboots.failed.len()), (150, 150));

    let boots: Boots =
        cluster.members[..MOST_BOOTS].iter().map(|member| (member.node.clone(), "x".repeat(36))).collect();
    cluster.members.iter_mut().for_each(|member| member.boot_id = "x".repeat(36));
    let rollout = Rollout { reboot: Some(boots), ..cluster.rollout.clone() };
    let actions = cluster.step_all(Some(&rollout));
    assert_eq!(actions.orders.len(), MOST_AT_WORK - 300);
    let of_operator = serde_json::to_string_pretty(&rollout).unwrap().len();
    let size = of_operator + size(&actions.status) + size(&actions.policy) + POLICY.len();
    assert!(size < 1 << 20, "{size}");
}

#[test]
fn the_limit_holds_workers_with_a_reason_and_no_control_plane() {
    let mut cluster = Cluster::new(&[("masters", 1), ("a", 2), ("b", 1)]);
    let decide = |cluster: &Cluster, elsewhere| {
        let Cluster { rollout, members, seen, now, .. } = cluster;
        decide(rollout, members, seen, &Status::default(), elsewhere, *now)
    };
    let nodes = |decision: &Decision| decision.orders.keys().cloned().collect::<Vec<_>>();
    assert_eq!(nodes(&decide(&cluster, MOST_AT_WORK)), ["masters-00"]);
    cluster.of_name("masters-00").runs = Some("b=".into());
    let held = decide(&cluster, MOST_AT_WORK);
    assert_eq!((nodes(&held).len(), held.status.phase), (0, Phase::Running));
    assert!(held.status.waits_for.starts_with("500 nodes are updating or have failed"), "{:?}", held.status);
    assert_eq!(nodes(&decide(&cluster, MOST_AT_WORK - 1)), ["a-00"]);
    assert_eq!(nodes(&decide(&cluster, 0)), ["a-00", "b-00"]);
}
