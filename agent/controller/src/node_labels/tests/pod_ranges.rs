//! The pod ranges of Nodes, from the prefixes of their instances.

use kops_agent_tests::ec2::{Ec2 as StandIn, Instance, Mood as Ec2Mood};

use super::*;

const SECOND: Duration = Duration::from_millis(1);
const PREFIX: &str = "2001:db8:0:1:a::/80";

fn nodes() -> Instance {
    Instance::of_group("c.example.com", "nodes")
}

/// A cluster whose configuration assigns pod ranges to Nodes.
async fn cluster(ec2: &StandIn, mood: Mood) -> Cluster {
    cluster_asking_within(Duration::from_millis(300), ec2, mood).await
}

/// A cluster that collects the Nodes that are due within `window`, and asks EC2 about these Nodes together.
async fn cluster_asking_within(window: Duration, ec2: &StandIn, mood: Mood) -> Cluster {
    let instances = Instances::within(window, Ec2::for_tests(&ec2.environment()[0].1));
    let mut cluster = Cluster::new(mood, Leadership::uncontested(), instances.clone()).await;
    let of_cluster = AwsCluster {
        name: "c.example.com".into(),
        region: "us-test-1".into(),
        use_ip_based_node_names: false,
    };
    let cloud = AwsControlPlane { cluster: of_cluster, instances, calls: CloudCalls::default() };
    cluster.node_labels.pod_ranges = PodRanges::new(Some(Arc::new(cloud)));
    cluster
}

fn ranges(state: &State, name: &str) -> Value {
    state.nodes[name]["spec"]["podCIDRs"].clone()
}

#[tokio::test]
async fn a_node_gets_the_addresses_of_its_pods_with_its_labels_by_one_patch() {
    let ec2 = StandIn::start().unwrap();
    ec2.put(NAME, nodes().with_ipv6_prefixes(&[PREFIX]));
    let cluster = cluster(&ec2, Mood::Good).await;
    cluster.run_until(is_labelled).await;
    assert_eq!(ranges(&cluster.api.state(), NAME), json!([PREFIX]));
    assert_eq!((cluster.api.state().patches.len(), ec2.calls()), (1, vec![1]));
    assert_eq!(cluster.node_labels.run_once().await.unwrap(), Found::default());
    // EC2 is not asked about a Node that has a range, even if EC2 now has another range.
    ec2.put(NAME, nodes().with_ipv6_prefixes(&["2001:db8:0:1:b::/80"]));
    assert_eq!(cluster.node_labels.run_once().await.unwrap(), Found::default());
    assert_eq!(ranges(&cluster.api.state(), NAME), json!([PREFIX]));
    assert_eq!(ec2.calls(), [1]);
}

#[tokio::test]
async fn many_nodes_are_identified_and_given_ranges_by_the_same_calls() {
    const NODES: usize = 1000;
    let ec2 = StandIn::start().unwrap();
    let name = |number: usize| format!("i-{:017x}", 0x100 + number);
    let prefix = |number: usize| format!("2001:db8:0:1:{number:x}::/80");
    ec2.put(NAME, nodes().with_ipv6_prefixes(&[PREFIX]));
    (0..NODES).for_each(|number| ec2.put(&name(number), nodes().with_ipv6_prefixes(&[&prefix(number)])));
    // The window is 3 s, because a busy machine may need long to fill a batch. A full batch does not wait for the end of
    // the window.
    let cluster = cluster_asking_within(Duration::from_secs(3), &ec2, Mood::Good).await;
    (0..NODES).for_each(|number| cluster.api.state().put(&name(number), json!({})));
    cluster.run_until(|state| (0..NODES).all(|number| has_group(state, &name(number)))).await;
    for number in 0..NODES {
        assert_eq!(ranges(&cluster.api.state(), &name(number)), json!([prefix(number)]));
    }
    // The Nodes fit into two batches. A busy machine may need more batches.
    assert!(ec2.calls().len() <= 4, "{:?}", ec2.calls());
}

#[tokio::test]
async fn a_node_without_a_range_is_labelled_has_an_event_and_gets_a_range_later() {
    let ec2 = StandIn::start().unwrap();
    ec2.put(NAME, nodes());
    let cluster = cluster(&ec2, Mood::Good).await;
    let script = async {
        cluster.until(|state| !state.events.is_empty()).await;
        assert!(is_labelled(&cluster.api.state()));
        let event = cluster.api.state().events[0].clone();
        assert_eq!(
            (&event["reason"], &event["involvedObject"]["name"]),
            (&json!("CIDRNotAvailable"), &json!(NAME))
        );
        let message = event["message"].as_str().unwrap();
        assert!(message.contains("has no IPv6 prefix on its primary network interface"), "{message}");
        // The Node's identity is cached, but the controller still asks EC2 for the Node's range.
        ec2.put(NAME, nodes().with_ipv6_prefixes(&[PREFIX]));
        cluster.until(|state| ranges(state, NAME) == json!([PREFIX])).await;
    };
    cluster.run_during(script).await;
    assert_eq!(cluster.api.state().patches.len(), 2);
}

#[tokio::test]
async fn a_cloud_that_does_not_answer_takes_no_range_and_gives_none() {
    let ec2 = StandIn::start().unwrap();
    ec2.put(NAME, nodes());
    let mut cluster = cluster(&ec2, Mood::Good).await;
    cluster.node_labels.cloud_pauses = Pauses { first: SECOND, longest: 60 * SECOND };
    let script = async {
        cluster.until(is_labelled).await;
        ec2.set_mood(Ec2Mood::Forbidding);
        let is_told = |event: &Value| event["message"].as_str().unwrap().contains("UnauthorizedOperation");
        cluster.until(|state| state.events.iter().any(is_told)).await;
        assert_eq!(ranges(&cluster.api.state(), NAME), json!([]));
        ec2.put(NAME, nodes().with_ipv6_prefixes(&[PREFIX]));
        ec2.set_mood(Ec2Mood::Good);
        cluster.until(|state| ranges(state, NAME) == json!([PREFIX])).await;
    };
    cluster.run_during(script).await;
}

#[tokio::test]
async fn another_machines_range_is_not_given_and_a_missing_group_keeps_none_from_its_own() {
    let ec2 = StandIn::start().unwrap();
    let impostor = "i-00000000000000002";
    ec2.put(NAME, Instance::of_group("c.example.com", "gone").with_ipv6_prefixes(&[PREFIX]));
    let cluster = cluster(&ec2, Mood::Good).await;
    cluster.api.state().put_saying(impostor, NAME, json!({}));
    let found = cluster.node_labels.run_once().await.unwrap();
    assert_eq!((found.patched, found.problems.len()), (0, 2));
    assert!(found.problems[impostor].contains("claims to be another machine"), "{found:?}");
    assert!(found.problems[NAME].contains("instance group gone"), "{found:?}");
    assert_eq!(ranges(&cluster.api.state(), impostor), json!([]));
    assert_eq!(ranges(&cluster.api.state(), NAME), json!([PREFIX]));
}

#[tokio::test]
async fn a_range_that_the_api_server_refuses_keeps_from_no_labels() {
    let ec2 = StandIn::start().unwrap();
    ec2.put(NAME, nodes().with_ipv6_prefixes(&[REFUSED_RANGE]));
    let cluster = cluster(&ec2, Mood::Good).await;
    let found = cluster.node_labels.run_once().await.unwrap();
    assert!(is_labelled(&cluster.api.state()));
    assert!(
        found.problems[NAME].contains("the API server refuses 2001:db8:bad::/80 (spec.podCIDRs"),
        "{found:?}"
    );
    assert_eq!(ranges(&cluster.api.state(), NAME), json!([]));
}

#[tokio::test]
async fn a_dry_run_shows_ranges_and_assigns_none() {
    let ec2 = StandIn::start().unwrap();
    ec2.put(NAME, nodes().with_ipv6_prefixes(&[PREFIX]));
    let mut cluster = cluster(&ec2, Mood::Good).await;
    cluster.node_labels.mode = Mode::Show;
    let found = cluster.node_labels.run_once().await.unwrap();
    assert_eq!(found.patches[NAME].pod_ranges, [PREFIX]);
    assert_eq!(ranges(&cluster.api.state(), NAME), json!([]));
}
