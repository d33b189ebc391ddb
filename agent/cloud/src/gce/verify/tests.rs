//! Compute Engine is a stand-in on loopback; an RSA key stands in for the TPM's key.

#![allow(clippy::unwrap_used)]

use kops_agent_cluster::identity::gce::GceCluster;
use kops_agent_tests::gce::tpm::{Claim, Tpm};
use kops_agent_tests::gce::{Gce, Instance, Mood, PROJECT, ZONE};

use super::*;
use crate::calls::CloudCalls;
use crate::gce::compute::Compute;
use crate::verify::{Answer, LONGEST_TOKEN_LIFE};

const CLUSTER: &str = "c.example.com";
const BODY: &[u8] = b"{}";
const NOW: i64 = 1_700_000_000;
const NODE: &str = "nodes-x1y2";

struct Cluster {
    gce: Gce,
    group: String,
    verifier: GceVerifier,
    tpm: Tpm,
}

impl Cluster {
    /// A cluster with one node, and the TPM of this node.
    fn new() -> Cluster {
        let gce = Gce::start().unwrap();
        let group = gce.put_group(CLUSTER, "nodes");
        let tpm = Tpm::generate().unwrap();
        let instance = gce.create_instance(&group, NODE);
        gce.put_instance(NODE, Instance { signing_key: tpm.public_pem(), ..instance });
        let compute = Compute::for_tests(&gce.url(), CloudCalls::default());
        let cluster = GceCluster { name: CLUSTER.into(), project: PROJECT.into(), region: "us-test1".into() };
        let verifier = GceVerifier::new(ManagedGroups::new(compute, cluster), 0);
        Cluster { gce, group, verifier, tpm }
    }

    async fn verify(&self, token: &str) -> Result<VerifiedNode, Refusal> {
        self.verify_from(1, token).await
    }

    /// Like `verify`, for a request from this address.
    async fn verify_from(&self, address: u8, token: &str) -> Result<VerifiedNode, Refusal> {
        let presented = Presented { token, body: BODY, origin: origin(address), now: NOW };
        self.verifier.examine(&presented).unwrap()?.verification.await
    }

    async fn reason(&self, token: &str) -> &'static str {
        self.verify(token).await.unwrap_err().reason
    }
}

fn origin(address: u8) -> Origin {
    Origin::from_address([10, 0, 0, address].into())
}

fn token(instance: &str, tpm: &Tpm) -> String {
    token_in(ZONE, instance, tpm)
}

fn token_in(zone: &str, instance: &str, tpm: &Tpm) -> String {
    tpm.token(&Claim { zone, ..Claim::new(instance, BODY, NOW - 1) }).unwrap()
}

#[tokio::test]
async fn a_machine_with_a_signed_token_is_verified() {
    let cluster = Cluster::new();
    let node = cluster.verify(&token(NODE, &cluster.tpm)).await.unwrap();
    assert_eq!(
        node,
        VerifiedNode {
            instance: format!("gce://{PROJECT}/{ZONE}/{NODE}"),
            node_name: NODE.into(),
            certificate_names: vec!["10.0.0.1".into()],
            instance_group: "nodes".into(),
            challenge_endpoint: "10.0.0.1:3987".into(),
            launched: Some(1_767_348_245),
            ..VerifiedNode::default()
        }
    );
}

#[tokio::test]
async fn metadata_that_a_machine_writes_is_ignored() {
    let cluster = Cluster::new();
    let instance = cluster.gce.create_instance(&cluster.group, NODE);
    let instance = Instance { signing_key: cluster.tpm.public_pem(), ..instance }
        .saying("kops-k8s-io-instance-group-name", "control-plane")
        .saying("created-by", "projects/123/zones/us-test1-a/instanceGroupManagers/other");
    cluster.gce.put_instance(NODE, instance);
    assert_eq!(cluster.verify(&token(NODE, &cluster.tpm)).await.unwrap().instance_group, "nodes");
}

#[tokio::test]
async fn other_machines_are_rejected() {
    let cluster = Cluster::new();
    let gce = &cluster.gce;
    let other = gce.put_group("d.example.com", "nodes");
    let of_other = gce.create_instance(&other, "nodes-other");
    let by = |instance: Instance| Instance { signing_key: cluster.tpm.public_pem(), ..instance };
    gce.put_instance("nodes-other", by(of_other));
    let alone = Instance { group: None, ..gce.create_instance(&cluster.group, "nodes-alone") };
    gce.put_instance("nodes-alone", by(alone));
    let stopped = Instance { status: "STOPPING".into(), ..gce.create_instance(&cluster.group, "nodes-stop") };
    gce.put_instance("nodes-stop", by(stopped));
    gce.create_instance(&cluster.group, "nodes-bare");
    for (instance, reason) in [
        ("nodes-other", "InstanceGroupUnknown"),
        ("nodes-alone", "InstanceGroupUnknown"),
        ("nodes-none", "InstanceGroupUnknown"),
        ("nodes-stop", "InstanceNotRunning"),
        ("nodes-bare", "NoSigningKey"),
    ] {
        assert_eq!(cluster.reason(&token(instance, &cluster.tpm)).await, reason, "{instance}");
    }
    let other_tpm = Tpm::generate().unwrap();
    assert_eq!(cluster.reason(&token(NODE, &other_tpm)).await, "WrongSignature");
    assert_eq!(cluster.reason("x-gce-tpm e30=").await, "MalformedToken");
    let presented = Presented { token: "x-aws-sts e30=", body: BODY, origin: origin(1), now: NOW };
    assert!(cluster.verifier.examine(&presented).is_none());
}

#[tokio::test]
async fn a_flood_of_lies_costs_few_calls() {
    let cluster = Cluster::new();
    let other_tpm = Tpm::generate().unwrap();
    let lie = token(NODE, &other_tpm);
    let answers = futures_util::future::join_all((0..200).map(|_| cluster.reason(&lie))).await;
    assert!(answers.iter().all(|reason| *reason == "WrongSignature"));
    // The zones, the groups, their template, the instances of the group, and the key take one request each.
    assert_eq!(cluster.gce.calls().len(), 5, "{:?}", cluster.gce.calls());
}

#[tokio::test]
async fn an_unreachable_cloud_does_not_reject_a_machine() {
    let cluster = Cluster::new();
    cluster.gce.set_mood(Mood::Forbidding);
    let refusal = cluster.verify(&token(NODE, &cluster.tpm)).await.unwrap_err();
    assert_eq!((refusal.answer, refusal.reason), (Answer::Unavailable, "ComputeUnavailable"));
    assert!(!refusal.message.contains("ya29"), "{}", refusal.message);
}

#[tokio::test]
async fn made_up_zones_cost_one_call_and_block_no_machine() {
    let cluster = Cluster::new();
    let lies: Vec<String> =
        (0..50).map(|number| token_in(&format!("us-test1-x{number}"), NODE, &cluster.tpm)).collect();
    let answers = futures_util::future::join_all(lies.iter().map(|lie| cluster.reason(lie))).await;
    assert!(answers.iter().all(|reason| *reason == "InstanceGroupUnknown"));
    assert_eq!(cluster.gce.calls(), ["zones.list"]);
    assert!(cluster.verify(&token(NODE, &cluster.tpm)).await.is_ok());
}

/// How often a list may be requested within `time`. Each list is used for at least 5 seconds.
fn lists_within(time: Duration) -> usize {
    1 + (time.as_secs() / 5) as usize
}

#[tokio::test]
async fn made_up_machines_cost_few_calls_and_block_no_machine() {
    let cluster = Cluster::new();
    let lies: Vec<String> =
        (0..1000).map(|number| token(&format!("nodes-x{number}"), &cluster.tpm)).collect();
    let asked = lies.iter().zip((0..20).cycle()).map(|(lie, from)| cluster.verify_from(from, lie));
    let begun = tokio::time::Instant::now();
    let refusals = futures_util::future::join_all(asked).await;
    let reasons: Vec<&str> = refusals.into_iter().map(|refused| refused.unwrap_err().reason).collect();
    let busy = |reason: &&&str| ["QueueFull", "QueuedTooLong"].contains(*reason);
    assert!(reasons.iter().all(|reason| busy(&reason) || *reason == "InstanceGroupUnknown"), "{reasons:?}");
    // The zones, the groups, their template and the instances of the group take one request each. Lists that became too old are requested
    // once more.
    let most = 4 + 2 * lists_within(begun.elapsed());
    assert!(cluster.gce.calls().len() <= most, "{:?}", cluster.gce.calls());

    // Google has just created this instance. No list contains the instance yet, so the machine must retry.
    let instance = cluster.gce.create_instance(&cluster.group, "nodes-new");
    cluster.gce.put_instance("nodes-new", Instance { signing_key: cluster.tpm.public_pem(), ..instance });
    let (new, before) = (token("nodes-new", &cluster.tpm), cluster.gce.calls().len());
    let over = std::sync::atomic::AtomicBool::new(false);
    let begun = tokio::time::Instant::now();
    let honest = async {
        while cluster.verify_from(99, &new).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    // The flood continues while the new machine retries.
    let flood = async {
        for lie in lies.iter().cycle() {
            if over.load(std::sync::atomic::Ordering::Relaxed) {
                break;
            }
            futures_util::future::join_all((0..20).map(|from| cluster.verify_from(from, lie))).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::join!(honest, flood);
    // The test permits these requests: one list of the group every few seconds, the list of groups once more, and the key and the instance
    // of the new machine.
    let calls = cluster.gce.calls();
    assert!(calls.len() - before <= 4 + 2 * lists_within(begun.elapsed()), "{:?}", &calls[before..]);
}

#[tokio::test]
async fn repeated_requests_of_a_machine_are_answered_from_the_cache() {
    let cluster = Cluster::new();
    for _ in 0..20 {
        cluster.verify(&token(NODE, &cluster.tpm)).await.unwrap();
    }
    assert_eq!(cluster.gce.calls().len(), 6, "{:?}", cluster.gce.calls());
}

#[tokio::test]
async fn a_machine_that_stopped_after_the_list_is_rejected() {
    let cluster = Cluster::new();
    let other_tpm = Tpm::generate().unwrap();
    assert_eq!(cluster.reason(&token(NODE, &other_tpm)).await, "WrongSignature");
    let stopped = cluster.gce.create_instance(&cluster.group, "nodes-other");
    let listed = Instance { id: stopped.id - 1, status: "STOPPING".into(), ..stopped };
    cluster.gce.put_instance(NODE, listed);
    assert_eq!(cluster.reason(&token(NODE, &cluster.tpm)).await, "InstanceNotRunning");
}

#[test]
fn a_token_expires_before_the_server_forgets_it() {
    assert_eq!((skew(0), skew(-1), skew(60), skew(MOST_SKEW)), (USUAL_SKEW, USUAL_SKEW, 60, MOST_SKEW));
    assert_eq!(skew(86_400), MOST_SKEW);
    // If a machine's clock is ahead by `MOST_SKEW`, its new token stays valid for twice `MOST_SKEW`.
    assert!(Duration::from_secs(2 * MOST_SKEW as u64) <= LONGEST_TOKEN_LIFE);
}
