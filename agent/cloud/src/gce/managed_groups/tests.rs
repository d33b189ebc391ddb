//! Compute Engine is a stand-in on loopback.

#![allow(clippy::unwrap_used)]

use futures_util::future::join_all;
use kops_agent_tests::gce::{Gce, Mood, Template, ZONE};

use kops_agent_cluster::labels::ObservedNode;

use super::super::identify::GceControlPlane;
use super::*;
use crate::calls::{CloudCalls, Outcome};
use crate::control_plane::{ControlPlane as _, NoPodRanges, NotIdentified};

const CLUSTER: &str = "c.example.com";
const LIST_ZONES: &str = "zones.list";
const LIST_GROUPS: &str = "instanceGroupManagers.list";
const LIST_INSTANCES: &str = "instanceGroupManagers.listManagedInstances";

fn path(name: &str) -> InstancePath {
    InstancePath { zone: ZONE.into(), name: name.into() }
}

fn asking(gce: &Gce, calls: &CloudCalls) -> ManagedGroups {
    let cluster =
        GceCluster { name: CLUSTER.into(), project: "my-project".into(), region: "us-test1".into() };
    ManagedGroups::new(Compute::for_tests(&gce.url(), calls.clone()), cluster)
}

async fn find(groups: &ManagedGroups, name: &str) -> Option<Managed> {
    groups.find(&path(name), Instant::now()).await.unwrap()
}

#[tokio::test]
async fn thousands_of_instances_cost_only_the_lists_of_their_groups() {
    let gce = Gce::start().unwrap();
    let mut names = Vec::new();
    for group in 0..50 {
        let managed = gce.put_group(CLUSTER, &format!("g{group}"));
        for number in 0..100 {
            let name = format!("g{group}-{number:04}");
            gce.create_instance(&managed, &name);
            names.push(name);
        }
    }
    let calls = CloudCalls::default();
    let groups = asking(&gce, &calls);
    let found = join_all(names.iter().map(|name| find(&groups, name))).await;
    for (name, found) in names.iter().zip(found) {
        let found = found.unwrap();
        assert_eq!(found.instance.path.name, *name);
        assert_eq!(found.template.metadata[gce::INSTANCE_GROUP_METADATA], name.split_once('-').unwrap().0);
    }
    assert_eq!((gce.calls_of(LIST_GROUPS), gce.calls_of(LIST_INSTANCES)), (1, 50));
    assert_eq!((gce.calls().len(), gce.tokens()), (102, 1));
    assert_eq!(calls.counted("compute", LIST_INSTANCES, Outcome::Success), 50);
}

#[tokio::test]
async fn lists_are_read_page_by_page() {
    let gce = Gce::start().unwrap();
    gce.set_page(2);
    let groups: Vec<String> = (0..5).map(|group| gce.put_group(CLUSTER, &format!("g{group}"))).collect();
    for number in 0..7 {
        gce.create_instance(&groups[4], &format!("g4-{number}"));
    }
    let asking = asking(&gce, &CloudCalls::default());
    assert!(find(&asking, "g4-6").await.is_some());
    assert_eq!((gce.calls_of(LIST_GROUPS), gce.calls_of(LIST_INSTANCES)), (3, 4));
}

#[tokio::test]
async fn only_instances_that_a_group_of_the_cluster_lists_are_found() {
    let gce = Gce::start().unwrap();
    let nodes = gce.put_group(CLUSTER, "nodes");
    let control_plane = gce.put_group(CLUSTER, "control-plane");
    let other = gce.put_group("d.example.com", "nodes");
    gce.create_instance(&other, "nodes-other");
    // The metadata of this instance falsely claims that the control plane's group created the instance.
    let liar = gce.create_instance(&nodes, "nodes-liar");
    let made_by = format!("projects/123/zones/{ZONE}/instanceGroupManagers/{control_plane}");
    let liar = liar.saying("created-by", &made_by).saying(gce::INSTANCE_GROUP_METADATA, "control-plane");
    gce.put_instance("nodes-liar", liar.clone());
    let alone = kops_agent_tests::gce::Instance { group: None, ..liar };
    gce.put_instance("control-plane-x1y2", alone);

    let groups = asking(&gce, &CloudCalls::default());
    let found = find(&groups, "nodes-liar").await.unwrap();
    assert_eq!(found.template.metadata[gce::INSTANCE_GROUP_METADATA], "nodes");
    for unlisted in ["nodes-other", "control-plane-x1y2", "nodes-none", "elsewhere"] {
        assert_eq!(find(&groups, unlisted).await, None, "{unlisted}");
    }
    // An instance is found even if its name does not match its group.
    gce.create_instance(&nodes, "named-by-hand");
    let groups = asking(&gce, &CloudCalls::default());
    assert!(find(&groups, "named-by-hand").await.is_some());
    let elsewhere = InstancePath { zone: "us-test1-b".into(), name: "nodes-liar".into() };
    assert_eq!(groups.find(&elsewhere, Instant::now()).await.unwrap(), None);
}

#[tokio::test]
async fn new_and_stopped_instances_are_noticed() {
    let gce = Gce::start().unwrap();
    let nodes = gce.put_group(CLUSTER, "nodes");
    let first = gce.create_instance(&nodes, "nodes-1");
    let groups = asking(&gce, &CloudCalls::default());
    assert!(find(&groups, "nodes-1").await.is_some());
    gce.create_instance(&nodes, "nodes-2");
    assert!(find(&groups, "nodes-2").await.is_some());
    let stopped = kops_agent_tests::gce::Instance { status: "STOPPING".into(), ..first };
    gce.put_instance("nodes-1", stopped);
    gce.create_instance(&nodes, "nodes-3");
    assert!(find(&groups, "nodes-3").await.is_some());
    assert_eq!(find(&groups, "nodes-1").await.unwrap().instance.status, "STOPPING");
    assert_eq!(gce.calls_of("instanceTemplates.get"), 1);
}

#[tokio::test]
async fn one_list_of_a_group_answers_for_all_older_nodes() {
    const REFUSED: usize = 13;
    let gce = Gce::start().unwrap();
    gce.set_page(100);
    let nodes = gce.put_group(CLUSTER, "nodes");
    (0..1000).for_each(|number| drop(gce.create_instance(&nodes, &format!("nodes-{number:04}"))));
    let groups = asking(&gce, &CloudCalls::default());
    let since = Instant::now();
    let names: Vec<String> = (0..REFUSED).map(|number| format!("nodes-none-{number}")).collect();
    for _ in 0..5 {
        for name in &names {
            assert_eq!(groups.find(&path(name), since).await.unwrap(), None);
        }
    }
    assert_eq!(gce.calls_of(LIST_INSTANCES), 10, "ten pages, once");
    // The Node of this instance appeared after the list was requested, so the list cannot prove that the instance is absent. Therefore the
    // list is requested again.
    gce.create_instance(&nodes, "nodes-new");
    assert!(find(&groups, "nodes-new").await.is_some());
    assert_eq!(gce.calls_of(LIST_INSTANCES), 21);
    assert!(groups.find(&path("nodes-0999"), since).await.unwrap().is_some());
    assert_eq!(groups.find(&path(&names[0]), since).await.unwrap(), None);
    assert_eq!(gce.calls_of(LIST_INSTANCES), 21);
}

#[tokio::test]
async fn a_group_without_a_template_belongs_to_no_cluster() {
    let gce = Gce::start().unwrap();
    let bare = gce.put_group_from(CLUSTER, "nodes", Template::default());
    gce.create_instance(&bare, "nodes-1");
    assert_eq!(find(&asking(&gce, &CloudCalls::default()), "nodes-1").await, None);
    assert_eq!(gce.calls_of(LIST_INSTANCES), 0);
}

#[tokio::test]
async fn errors_of_compute_engine_are_reported_and_temporary() {
    let gce = Gce::start().unwrap();
    let nodes = gce.put_group(CLUSTER, "nodes");
    gce.create_instance(&nodes, "nodes-1");
    let calls = CloudCalls::default();
    let groups = asking(&gce, &calls);
    for (mood, expected) in [
        (Mood::Down, "503 backendError"),
        (Mood::Forbidding, "grant this instance's service account the permission compute.zones.list"),
        (Mood::Redirecting, "answers zones.list with 302"),
        (Mood::Throttling, "rateLimitExceeded"),
    ] {
        gce.set_mood(mood);
        let error = groups.find(&path("nodes-1"), Instant::now()).await.unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("ya29"), "{error}");
    }
    assert!(calls.counted("compute", LIST_ZONES, Outcome::Throttled) > 1, "it was tried again");
    assert!(calls.counted("compute", LIST_ZONES, Outcome::Error) > 2);
    gce.set_mood(Mood::Good);
    assert!(find(&groups, "nodes-1").await.is_some());
}

#[tokio::test]
async fn a_token_that_google_rejects_is_replaced() {
    let gce = Gce::start().unwrap();
    let nodes = gce.put_group(CLUSTER, "nodes");
    gce.create_instance(&nodes, "nodes-1");
    gce.set_mood(Mood::Revoking);
    assert!(find(&asking(&gce, &CloudCalls::default()), "nodes-1").await.is_some());
    assert_eq!(gce.tokens(), 2);
}

#[tokio::test]
async fn a_failed_request_fails_all_waiting_questions() {
    let gce = Gce::start().unwrap();
    gce.set_mood(Mood::Down);
    let groups = asking(&gce, &CloudCalls::default());
    let (first, second) = (path("nodes-1"), path("nodes-2"));
    let (first, second) =
        tokio::join!(groups.find(&first, Instant::now()), groups.find(&second, Instant::now()));
    assert!(Arc::ptr_eq(&first.unwrap_err(), &second.unwrap_err()));
}

#[tokio::test]
async fn made_up_zones_cost_one_list_of_zones() {
    let gce = Gce::start().unwrap();
    let nodes = gce.put_group(CLUSTER, "nodes");
    gce.create_instance(&nodes, "nodes-1");
    let groups = asking(&gce, &CloudCalls::default());
    for number in 0..500 {
        let made_up = InstancePath { zone: format!("us-test1-x{number}"), name: "nodes-1".into() };
        assert_eq!(groups.find(&made_up, Instant::now()).await.unwrap(), None);
    }
    assert_eq!((gce.calls(), groups.0.zones.lock().len()), (vec![LIST_ZONES.to_owned()], 0));
    assert!(find(&groups, "nodes-1").await.is_some());
    assert_eq!(gce.calls_of(LIST_ZONES), 1);
}

fn node(name: &str) -> ObservedNode {
    let provider_id = format!("gce://my-project/{ZONE}/{name}");
    ObservedNode { name: name.into(), provider_id, ..ObservedNode::default() }
}

#[tokio::test]
async fn one_list_of_a_zone_gives_thousands_of_nodes_their_pod_ranges() {
    let gce = Gce::start().unwrap();
    let managed = gce.put_group(CLUSTER, "nodes");
    let range = |number: usize| format!("2600:1900:4000:{number:x}::/96");
    let names: Vec<String> = (0..2000).map(|number| format!("nodes-{number:04}")).collect();
    for (number, name) in names.iter().enumerate() {
        let instance = gce.create_instance(&managed, name);
        gce.put_instance(name, instance.with_external_ipv6(&[&range(number)]));
    }
    let control_plane = GceControlPlane { groups: asking(&gce, &CloudCalls::default()) };
    let nodes: Vec<ObservedNode> = names.iter().map(|name| node(name)).collect();
    let asked = join_all(nodes.iter().map(|node| control_plane.pod_ranges(node, Instant::now()))).await;
    for (number, ranges) in asked.into_iter().enumerate() {
        assert_eq!(ranges.unwrap(), [range(number)]);
    }
    // A page has at most 500 instances, so one list of 2000 instances takes four requests.
    assert_eq!((gce.calls_of("instances.list"), gce.calls_of("instances.get")), (4, 0));
}

#[tokio::test]
async fn a_node_gets_only_the_range_of_its_instance() {
    let gce = Gce::start().unwrap();
    let managed = gce.put_group(CLUSTER, "nodes");
    let range = "2600:1900:4000:1::/96";
    gce.put_instance("nodes-x", gce.create_instance(&managed, "nodes-x").with_external_ipv6(&[range]));
    gce.create_instance(&managed, "nodes-none");
    let groups = asking(&gce, &CloudCalls::default());
    let control_plane = GceControlPlane { groups: groups.clone() };
    assert_eq!(control_plane.pod_ranges(&node("nodes-x"), Instant::now()).await.unwrap(), [range]);
    match control_plane.pod_ranges(&node("nodes-none"), Instant::now()).await {
        Err(NoPodRanges::Lacking(problem)) => {
            assert!(problem.to_string().contains("nodes-none"), "{problem}");
        }
        other => panic!("{other:?}"),
    }
    let impostor = ObservedNode { name: "nodes-none".into(), ..node("nodes-x") };
    match control_plane.pod_ranges(&impostor, Instant::now()).await {
        Err(NoPodRanges::NotIdentified(NotIdentified::Refused(refusal))) => {
            assert!(refusal.is_definite(), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
    // This instance has replaced an instance of the same name. The cached list of ranges still has the old instance.
    let managed = find(&groups, "nodes-x").await.unwrap().instance;
    let after = ManagedInstance { id: managed.id + 100, ..managed };
    assert_eq!(groups.ranges(&after).await.unwrap(), None);
    for mood in [Mood::Down, Mood::Forbidding, Mood::Throttling, Mood::Redirecting] {
        let control_plane = GceControlPlane { groups: asking(&gce, &CloudCalls::default()) };
        gce.set_mood(mood);
        let asked = control_plane.pod_ranges(&node("nodes-x"), Instant::now()).await;
        let is_unknown = matches!(asked, Err(NoPodRanges::NotIdentified(NotIdentified::Unavailable(_))));
        assert!(is_unknown, "{mood:?}: {asked:?}");
    }
}
