//! Honest and dishonest machines with their own keys.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use kops_agent_cluster::bootstrap::host_token::KEY_FILE;
use kops_agent_cluster::identity::host::Host;
use kops_agent_cluster::labels::ObservedNode;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use tokio::time::Instant;

use super::super::HostsUnavailable;
use super::super::testing::KnownHosts;
use super::*;
use crate::authenticate::Authenticator as _;
use crate::control_plane::{ControlPlane as _, NoPodRanges, NotIdentified};
use crate::metal::authenticate::HostAuthenticator;
use crate::metal::identify::HostControlPlane;
use crate::verify::Origin;
use kops_agent_spec::KopsControllerServerOptions;

const BODY: &[u8] = b"{}";

/// A machine with this name, and its `Host`.
fn enrolled(name: &str) -> (HostAuthenticator, Host) {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join(KEY_FILE.trim_start_matches('/'));
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, key.serialize_pem()).unwrap();
    let host = Host {
        name: name.into(),
        public_key: key.public_key_pem(),
        instance_group: "nodes-main".into(),
        pod_cidrs: vec!["10.1.0.0/24".into()],
    };
    (HostAuthenticator::new(root.path(), name).unwrap(), host)
}

fn seconds() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

async fn token(machine: &HostAuthenticator) -> String {
    machine.token(BODY).await.unwrap().to_str().unwrap().to_owned()
}

async fn ask(verifier: &HostVerifier, token: &str) -> Result<VerifiedNode, Refusal> {
    let presented =
        Presented { token, body: BODY, origin: Origin::from_address([10, 0, 0, 1].into()), now: seconds() };
    verifier.examine(&presented).unwrap()?.verification.await
}

fn verifier(hosts: Vec<Host>) -> (Arc<KnownHosts>, HostVerifier) {
    let known = Arc::new(KnownHosts::new(hosts));
    let verifier = HostVerifier::new(Arc::new(Enrolled::new(known.clone())), 0);
    (known, verifier)
}

#[tokio::test]
async fn an_enrolled_machine_is_verified_as_its_host() {
    let (machine, host) = enrolled("vm1");
    let (_, verifier) = verifier(vec![host]);
    let expected = VerifiedNode {
        instance: "kops-system/vm1".into(),
        node_name: "vm1".into(),
        instance_group: "nodes-main".into(),
        ..VerifiedNode::default()
    };
    assert_eq!(ask(&verifier, &token(&machine).await).await.unwrap(), expected);
    let origin = Origin::from_address([10, 0, 0, 1].into());
    let other = Presented { token: "x-gce-tpm e30=", body: BODY, origin, now: seconds() };
    assert!(verifier.examine(&other).is_none());
}

#[tokio::test]
async fn other_machines_are_rejected() {
    let (machine, host) = enrolled("vm1");
    let (namesake, _) = enrolled("vm1");
    let (stranger, _) = enrolled("vm3");
    let (without_group, ungrouped) = enrolled("vm4");
    let (without_key, keyless) = enrolled("vm5");
    let ungrouped = Host { instance_group: String::new(), ..ungrouped };
    let keyless = Host { public_key: String::new(), ..keyless };
    let (_, verifier) = verifier(vec![host, ungrouped, keyless]);
    for (machine, reason) in [
        (&namesake, "WrongSignature"),
        (&stranger, "HostNotFound"),
        (&without_group, "InstanceGroupUnknown"),
        (&without_key, "NoSigningKey"),
    ] {
        let refusal = ask(&verifier, &token(machine).await).await.unwrap_err();
        assert_eq!(refusal.reason, reason, "{refusal:?}");
    }
    let token = token(&machine).await;
    let origin = Origin::from_address([10, 0, 0, 1].into());
    for (now, body, reason) in [
        (seconds() + 302, BODY, "TokenExpired"),
        (seconds() - 302, BODY, "TokenExpired"),
        (seconds(), &b"{ }"[..], "TokenOfOtherRequest"),
    ] {
        let presented = Presented { token: &token, body, origin, now };
        assert_eq!(verifier.examine(&presented).unwrap().err().unwrap().reason, reason);
    }
}

#[tokio::test]
async fn the_clock_skew_is_limited_so_that_no_token_is_used_twice() {
    let (known, _) = verifier(Vec::new());
    let of = |skew| HostVerifier::new(Arc::new(Enrolled::new(known.clone())), skew).max_skew;
    assert_eq!((of(0), of(-1), of(60), of(720), of(100_000)), (300, 300, 60, 720, 720));
}

#[tokio::test]
async fn lies_share_one_list_and_a_failed_list_rejects_no_host() {
    let (machine, host) = enrolled("vm1");
    let (known, verifier) = verifier(vec![host.clone()]);
    let machines: Vec<HostAuthenticator> =
        (0..50).map(|number| enrolled(&format!("lie{number}")).0).collect();
    let tokens = join_all(machines.iter().map(token)).await;
    let asked = join_all(tokens.iter().map(|token| ask(&verifier, token))).await;
    assert!(asked.iter().all(|answer| answer.as_ref().unwrap_err().reason == "HostNotFound"));
    assert!(ask(&verifier, &token(&machine).await).await.is_ok());
    assert_eq!(known.lists(), 1);
    let hosts = Arc::new(Enrolled::new(known.clone()));
    known.set(Err(HostsUnavailable("hosts.kops.k8s.io is forbidden".into())));
    let refusal = ask(&HostVerifier::new(hosts.clone(), 0), &token(&machine).await).await.unwrap_err();
    assert_eq!(refusal.reason, "HostsUnavailable");
    assert!(refusal.message.contains("is forbidden"), "{refusal:?}");
    let control_plane = HostControlPlane { hosts };
    let node = ObservedNode { name: "vm1".into(), ..ObservedNode::default() };
    let identified = control_plane.identify(&node, Instant::now()).await;
    assert!(matches!(identified, Err(NotIdentified::Unavailable(_))), "{identified:?}");
    let ranges = control_plane.pod_ranges(&node, Instant::now()).await;
    assert!(matches!(ranges, Err(NoPodRanges::NotIdentified(NotIdentified::Unavailable(_)))), "{ranges:?}");
}

#[tokio::test]
async fn a_node_is_identified_as_its_host_and_gets_its_ranges() {
    let (_, host) = enrolled("vm1");
    let known = Arc::new(KnownHosts::new(vec![host.clone()]));
    let control_plane = HostControlPlane { hosts: Arc::new(Enrolled::new(known.clone())) };
    let node = |name: &str| ObservedNode { name: name.into(), ..ObservedNode::default() };
    let (vm1, vm2) = (node("vm1"), node("vm2"));
    assert_eq!(control_plane.identify(&vm1, Instant::now()).await.unwrap().instance_group, "nodes-main");
    assert_eq!(control_plane.pod_ranges(&vm1, Instant::now()).await.unwrap(), ["10.1.0.0/24"]);
    match control_plane.identify(&vm2, Instant::now()).await {
        Err(NotIdentified::Refused(refusal)) => assert_eq!(refusal.reason(), "HostNotFound"),
        other => panic!("{other:?}"),
    }
    // The machine `vm2` is enrolled now. Only a list that is requested from now on contains the `Host` of `vm2`.
    known.set(Ok(vec![host.clone(), Host { name: "vm2".into(), ..host }]));
    assert!(control_plane.identify(&vm2, Instant::now()).await.is_ok());
    let server = KopsControllerServerOptions::default();
    assert!(control_plane.verifier(&server).await.unwrap().is_none());
    assert!(!control_plane.names_instances());
}

#[tokio::test]
async fn many_nodes_cost_one_list() {
    let (_, host) = enrolled("vm");
    let named = |number: usize| Host { name: format!("vm-{number}"), ..host.clone() };
    let known = Arc::new(KnownHosts::new((0..5000).map(named).collect()));
    let control_plane = HostControlPlane { hosts: Arc::new(Enrolled::new(known.clone())) };
    let nodes: Vec<ObservedNode> = (0..5000)
        .map(|number| ObservedNode { name: format!("vm-{number}"), ..ObservedNode::default() })
        .collect();
    let asked = join_all(nodes.iter().map(|node| control_plane.identify(node, Instant::now()))).await;
    assert!(asked.iter().all(Result::is_ok));
    assert_eq!(known.lists(), 1);
}
