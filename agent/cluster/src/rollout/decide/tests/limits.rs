//! The limits of what a decision writes.

use time::Duration;

use super::super::super::pods::Container;
use super::super::super::testing::Cluster;
use super::super::super::turns::MOST_AT_WORK;
use super::super::super::wanted::MaxUnavailable;

/// The status has each order, and digests of containers that have restarted. A ConfigMap has at most 1 MiB.
#[test]
fn the_status_of_the_largest_rollout_fits_into_a_config_map() {
    let mut cluster = Cluster::new(&[("a", 1500), ("b", 1500)]);
    cluster.rollout.max_unavailable = MaxUnavailable::Percent(50);
    cluster.rollout.check_pods_after = 60;
    for member in &mut cluster.members {
        member.node = format!("i-0123456789abcdef0.eu-central-1.compute.internal.{}", member.node);
        let pods = (0..30).map(|pod| {
            (format!("kube-system/{pod}/{}", member.node), Container { restarts: 1, ..Container::default() })
        });
        cluster.containers.insert(member.node.clone(), Ok(pods.collect()));
    }
    assert_eq!(cluster.step().len(), MOST_AT_WORK);
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
