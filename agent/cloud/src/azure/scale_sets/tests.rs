//! Azure Resource Manager is a stand-in on loopback.

#![allow(clippy::unwrap_used)]

use kops_agent_tests::azure::{Azure, CLUSTER_TAG, Machine, Mood, RESOURCE_GROUP, SUBSCRIPTION};

use super::*;
use crate::calls::{CloudCalls, Outcome};

const CLUSTER: &str = "c.example.com";
const NODES: &str = "nodes.c.example.com";

fn cluster() -> AzureCluster {
    AzureCluster {
        name: CLUSTER.into(),
        subscription: SUBSCRIPTION.into(),
        resource_group: RESOURCE_GROUP.into(),
    }
}

fn scale_sets(azure: &Azure) -> (ScaleSets, CloudCalls) {
    kops_agent_net::tls::install_provider();
    let calls = CloudCalls::default();
    let arm = Arm::for_tests(&azure.url(), SUBSCRIPTION, RESOURCE_GROUP, calls.clone());
    (ScaleSets::new(arm, cluster()), calls)
}

fn path(scale_set: &str, number: u32) -> MachinePath {
    MachinePath { scale_set: Some(scale_set.into()), name: number.to_string() }
}

fn worker(name: &str, last: u8) -> Machine {
    Machine::of_group(CLUSTER, "nodes", name, [10, 0, 0, last].into())
}

async fn found(sets: &ScaleSets, scale_set: &str, number: u32) -> Option<String> {
    sets.find(&path(scale_set, number), Instant::now()).await.unwrap().map(|machine| machine.computer_name)
}

#[tokio::test]
async fn many_questions_cost_one_list_for_each_scale_set() {
    let azure = Azure::start().unwrap();
    for number in 0..250 {
        azure.put("Nodes.c.example.com", number, worker(&format!("nodes{number:06}"), 1));
    }
    azure.set_page(100);
    let (sets, calls) = scale_sets(&azure);
    let sets_of_all = &sets;
    let questions = (0..250).map(|number| async move {
        sets_of_all.find(&path(NODES, number), Instant::now()).await.unwrap().unwrap()
    });
    let machines = futures_util::future::join_all(questions).await;
    assert!(machines.iter().zip(0..).all(|(machine, number)| machine.path == path(NODES, number)));
    assert_eq!(azure.calls().len(), 4, "the scale sets, and three pages of machines");
    assert_eq!(azure.tokens(), 1);
    let counted = calls.counted("arm", "virtualMachineScaleSetVMs.list", Outcome::Success);
    assert_eq!(counted, 3);
    let claimed = sets.find_claimed(&path(NODES, 7)).await.unwrap().unwrap();
    assert_eq!(claimed.1, [IpAddr::from([10, 0, 0, 1])]);
    assert!(sets.has_address([10, 0, 0, 1].into()) && !sets.has_address([10, 0, 0, 2].into()));
}

#[tokio::test]
async fn made_up_machines_cost_no_requests() {
    let azure = Azure::start().unwrap();
    azure.put(NODES, 0, worker("nodes000000", 1));
    azure.put("nodes.other.com", 0, worker("nodes000000", 1));
    let (sets, _) = scale_sets(&azure);
    for number in 0..20 {
        assert!(
            sets.find_claimed(&path(&format!("made-up-{number}.c.example.com"), 0)).await.unwrap().is_none()
        );
    }
    assert!(sets.find_claimed(&path("nodes.other.com", 0)).await.unwrap().is_none());
    assert_eq!(azure.calls().len(), 1, "{:?}", azure.calls());
    for number in 1..20 {
        assert!(sets.find_claimed(&path(NODES, number)).await.unwrap().is_none());
    }
    assert_eq!(azure.calls().len(), 2, "{:?}", azure.calls());
    assert_eq!(sets.0.sets.lock().len(), 1);
}

#[tokio::test]
async fn new_and_deleted_machines_are_noticed() {
    let azure = Azure::start().unwrap();
    azure.put(NODES, 0, worker("nodes000000", 1));
    let (sets, _) = scale_sets(&azure);
    assert_eq!(found(&sets, NODES, 1).await, None);
    azure.put(NODES, 1, worker("nodes000001", 2));
    assert_eq!(found(&sets, NODES, 1).await.as_deref(), Some("nodes000001"));
    let stopped = Machine { power: "deallocated".into(), ..worker("nodes000002", 3) };
    azure.put(NODES, 2, stopped);
    let machine = sets.find(&path(NODES, 2), Instant::now()).await.unwrap().unwrap();
    assert_eq!(machine.state, "deallocated");
    let mut other = worker("nodes000001", 2);
    other.tags.insert(CLUSTER_TAG.into(), "d.c.example.com".into());
    azure.put("x.d.c.example.com", 0, Machine { computer_name: "theirs".into(), ..other });
    assert!(sets.has_namesake("nodes000001", &path(NODES, 0)).await);
    assert!(!sets.has_namesake("nodes000001", &path(NODES, 1)).await, "it is itself");
    assert!(!sets.has_namesake("theirs", &path(NODES, 0)).await);
}

#[tokio::test]
async fn a_forbidden_slow_or_unreadable_answer_does_not_mean_absent() {
    for (mood, has_said) in [
        (Mood::Forbidding, "Contributor"),
        (Mood::Down, "answers virtualMachineScaleSets.list with 503"),
        (Mood::WithoutGroup, "ResourceGroupNotFound"),
        (Mood::Throttling(1), "throttles virtualMachineScaleSets.list"),
        (Mood::Babbling, "which is not an answer of Azure Resource Manager"),
        (Mood::Truncating, "which is not an answer of Azure Resource Manager"),
        (Mood::Endless, "its pages have no end"),
        (Mood::LeadingAstray, "its next page is on another server"),
        (Mood::Redirecting, "with 302"),
    ] {
        let azure = Azure::start().unwrap();
        azure.put(NODES, 0, worker("nodes000000", 1));
        azure.set_mood(mood);
        let (sets, _) = scale_sets(&azure);
        let wanted = path(NODES, 0);
        let asked = tokio::time::timeout(Duration::from_secs(60), sets.find(&wanted, Instant::now()));
        let error = asked.await.unwrap().unwrap_err();
        assert!(!error.is_absent() && error.to_string().contains(has_said), "{mood:?}: {error}");
        assert!(!error.to_string().contains("a-token"), "{error}");
        if !matches!(mood, Mood::Endless) {
            azure.set_mood(Mood::Good);
            assert!(found(&sets, NODES, 0).await.is_some(), "{mood:?}");
        }
    }
}

#[tokio::test]
async fn a_revoked_token_is_replaced() {
    let azure = Azure::start().unwrap();
    azure.put(NODES, 0, worker("nodes000000", 1));
    azure.set_mood(Mood::Revoking);
    let (sets, _) = scale_sets(&azure);
    assert!(found(&sets, NODES, 0).await.is_some());
    assert_eq!(azure.tokens(), 2);
}
