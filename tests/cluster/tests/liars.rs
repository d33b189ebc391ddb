//! Machines with false identities send requests to the bootstrap server of the cluster.

use std::time::SystemTime;

use kops_agent_machines::bootstrap::{Answer, KeyPair, ask, new_key, request_for, try_ask};
use kops_agent_tests::ec2::Instance;
use kops_agent_tests::example_store::{CLUSTER, NODES, REGION};
use kops_agent_tests::sts::Principal;
use serde_json::Value;

use crate::cluster::Cluster;

const STS: &str = "sts.eu-west-1.amazonaws.com";

/// A machine that has not joined yet, with its own key.
pub struct Newcomer {
    principal: Principal,
    pub key: KeyPair,
    pub request: String,
}

impl Newcomer {
    pub fn of_nodes(cluster: &Cluster, id: &str) -> Newcomer {
        Newcomer::of_group(cluster, NODES, id)
    }

    /// A machine of this group, which the stand-ins for EC2 and STS recognize.
    pub fn of_group(cluster: &Cluster, group: &str, id: &str) -> Newcomer {
        let principal = Principal::instance(&format!("nodes.{CLUSTER}"), id);
        cluster.world.sts.put(&principal);
        cluster.world.ec2.put(id, Instance::of_group(CLUSTER, group));
        let key = new_key();
        Newcomer { principal, request: request_for(&key), key }
    }

    /// A token that proves the machine's identity for its certificate request.
    pub fn token(&self) -> String {
        self.principal.token_v1(STS, REGION, self.request.as_bytes(), now())
    }

    /// Requests the machine's certificate once. Returns the status of the response, or `None` if no response comes.
    pub fn try_join(&self, cluster: &Cluster) -> Option<u16> {
        let worker = &cluster.workers()[0].machine;
        try_ask(worker, cluster.asked().address, &self.token(), &self.request).map(|answer| answer.status)
    }
}

/// The server rejects each false identity and gives it no certificate. It gives a certificate to an honest newcomer.
pub fn get_nothing(cluster: &Cluster) {
    let node = |id: &str| Principal::instance(&format!("nodes.{CLUSTER}"), id);
    let (world, worker, server) = (&cluster.world, &cluster.workers()[0].machine, cluster.asked().address);
    let Newcomer { principal: honest, request, .. } = Newcomer::of_nodes(cluster, "i-0d3a0c0ffee0000a1");

    let unknown = node("i-0d3a0c0ffee0000a2");
    let of_another_cluster = node("i-0d3a0c0ffee0000a3");
    world.sts.put(&of_another_cluster);
    world.ec2.put("i-0d3a0c0ffee0000a3", Instance::of_group("other.example.com", NODES));
    let of_another_role = Principal::instance("build-servers", "i-0d3a0c0ffee0000a4");
    world.sts.put(&of_another_role);
    world.ec2.put("i-0d3a0c0ffee0000a4", Instance::of_group(CLUSTER, NODES));
    let terminated = node("i-0d3a0c0ffee0000a5");
    world.sts.put(&terminated);

    let token = |of: &Principal, body: &str| of.token_v1(STS, REGION, body.as_bytes(), now());
    let of_honest = token(&honest, &request);
    for (what, token) in [
        ("no token", String::new()),
        ("the signature of a key that STS does not know", token(&unknown, &request)),
        ("another cluster's machine", token(&of_another_cluster, &request)),
        ("another role's machine", token(&of_another_role, &request)),
        ("a machine that is gone", token(&terminated, &request)),
        ("a token for another request", token(&honest, "{}")),
        ("a token for another service", honest.token_v1("example.com", REGION, request.as_bytes(), now())),
        ("a token of yesterday", honest.token_v1(STS, REGION, request.as_bytes(), now() - 86_400)),
    ] {
        let Answer { status, body: answer, .. } = ask(worker, server, &token, &request);
        // Status 429 does not count as a rejection, because an honest machine could get it too.
        assert!((400..500).contains(&status) && status != 429, "{what}: {status} {answer}");
        assert!(!answer.contains("BEGIN"), "{what}: {answer}");
    }
    let Answer { status, body: answer, .. } = ask(worker, server, &of_honest, &request);
    assert_eq!(status, 200, "{answer}");
    let certs: Value = serde_json::from_str(&answer).unwrap();
    assert!(
        certs["Certs"]["kubelet"].as_str().is_some_and(|pem| pem.contains("BEGIN CERTIFICATE")),
        "{answer}"
    );
}

fn now() -> i64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs().try_into().unwrap()
}
