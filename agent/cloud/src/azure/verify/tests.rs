//! Azure Resource Manager and the metadata service are stand-ins.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kops_agent_cluster::identity::azure::AzureCluster;
use kops_agent_tests::azure::metadata::{Document, MetadataService};
use kops_agent_tests::azure::{
    Azure, CLUSTER_TAG, INSTANCE_GROUP_TAG, Machine, Mood, RESOURCE_GROUP, SUBSCRIPTION, resource_id_alone,
};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

use super::*;
use crate::azure::arm::Arm;
use crate::calls::CloudCalls;
use crate::verify::{Answer, LONGEST_TOKEN_LIFE, Origin, Proof};

const CLUSTER: &str = "c.example.com";
const NODES: &str = "nodes.c.example.com";
const BODY: &[u8] = b"{}";
const NOW: i64 = 1_700_000_000;

struct World {
    azure: Azure,
    metadata: MetadataService,
    verifier: AzureVerifier,
}

impl World {
    fn new() -> World {
        kops_agent_net::tls::install_provider();
        let azure = Azure::start().unwrap();
        let metadata = MetadataService::generate().unwrap();
        let arm = Arm::for_tests(&azure.url(), SUBSCRIPTION, RESOURCE_GROUP, CloudCalls::default());
        let cluster = AzureCluster {
            name: CLUSTER.into(),
            subscription: SUBSCRIPTION.into(),
            resource_group: RESOURCE_GROUP.into(),
        };
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(metadata.root.clone())).unwrap();
        let attestation = Attestation::new(Arc::new(roots), "http://127.0.0.1:1/pkiops/certs/").unwrap();
        let verifier = AzureVerifier::new(ScaleSets::new(arm, cluster), attestation);
        azure.put(NODES, 0, worker());
        World { azure, metadata, verifier }
    }

    fn token(&self, number: u32, vm_id: &str) -> String {
        self.metadata.token(NODES, number, &Document::new(vm_id, BODY, NOW)).unwrap()
    }

    async fn verify(&self, token: &str) -> Result<VerifiedNode, Refusal> {
        self.verify_at(token, BODY, NOW).await
    }

    async fn verify_at(&self, token: &str, body: &[u8], now: i64) -> Result<VerifiedNode, Refusal> {
        let presented = Presented { token, body, origin: Origin::from_address([10, 0, 0, 1].into()), now };
        let examined = self.verifier.examine(&presented).unwrap()?;
        let node = examined.verification.await?;
        match examined.signature {
            Some(signature) => signature.await.map(|()| node),
            None => Ok(node),
        }
    }

    async fn reason(&self, token: &str) -> &'static str {
        self.verify(token).await.unwrap_err().reason
    }
}

fn worker() -> Machine {
    Machine::of_group(CLUSTER, "nodes", "Nodes000000", [10, 0, 0, 4].into())
}

fn own() -> String {
    worker().vm_id
}

#[tokio::test]
async fn a_machine_outside_scale_sets_is_verified_by_its_document() {
    let world = World::new();
    let machine = Machine::of_group(CLUSTER, "general", "General-x7k2", [10, 0, 0, 5].into());
    world.azure.put_alone("General-x7k2", machine.clone());
    let token = |vm_id: &str| {
        let document = world.metadata.sign(&Document::new(vm_id, BODY, NOW)).unwrap();
        format!("x-azure-id {} {document}", resource_id_alone("General-x7k2"))
    };
    let expected = VerifiedNode {
        instance: format!("azure://{}", resource_id_alone("general-x7k2")),
        node_name: "general-x7k2".into(),
        certificate_names: vec!["10.0.0.5".into()],
        instance_group: "general".into(),
        challenge_endpoint: "10.0.0.5:3987".into(),
        addresses: vec![[10, 0, 0, 5].into()],
        launched: Some(1_769_817_300),
    };
    assert_eq!(world.verify(&token(&machine.vm_id)).await.unwrap(), expected);
    assert_eq!(world.reason(&token(&own())).await, "DocumentOfOtherMachine");
}

#[tokio::test]
async fn a_machine_with_a_signed_document_is_verified() {
    let world = World::new();
    let expected = VerifiedNode {
        instance: format!("azure://{}", kops_agent_tests::azure::resource_id(NODES, 0)),
        node_name: "nodes000000".into(),
        certificate_names: vec!["10.0.0.4".into()],
        instance_group: "nodes".into(),
        challenge_endpoint: "10.0.0.4:3987".into(),
        addresses: vec![[10, 0, 0, 4].into()],
        launched: Some(1_769_817_300),
    };
    for with_attributes in [false, true] {
        let vm_id = own();
        let document = Document { with_attributes, ..Document::new(&vm_id, BODY, NOW) };
        let token = world.metadata.token("Nodes.C.example.com", 0, &document).unwrap();
        assert_eq!(world.verify(&token).await.unwrap(), expected);
    }
    let token = world.token(0, &own());
    let presented =
        Presented { token: &token, body: BODY, origin: Origin::from_address([10, 0, 0, 1].into()), now: NOW };
    let examined = world.verifier.examine(&presented).unwrap().ok().unwrap();
    // The token alone is no proof: the server also calls the machine back. The server accepts a token only once, and remembers the token
    // until after its expiry.
    assert!(matches!(examined.proof, Proof::CallBack { claimed } if claimed != MachineId::Uuid(0)));
    assert_eq!(examined.signed_at, Some(NOW));
    assert!(LONGEST_TOKEN_LIFE.as_secs() > 300 + 2 * 120);
    let again = world.token(0, &own());
    let presented = Presented { token: &again, ..presented };
    let fingerprint = world.verifier.examine(&presented).unwrap().ok().unwrap().fingerprint;
    assert_eq!(fingerprint, examined.fingerprint, "two documents for one body are one token");
}

/// Outside of scale sets, operators choose the names, so two machines may have one name.
#[tokio::test]
async fn a_machine_with_a_namesake_has_no_known_age() {
    let world = World::new();
    let token = world.token(0, &own());
    world.azure.put(NODES, 1, Machine { private_ips: vec![[10, 0, 0, 5].into()], ..worker() });
    assert_eq!(world.verify(&token).await.unwrap().launched, None);
    let world = World::new();
    let token = world.token(0, &own());
    world.azure.put(NODES, 0, Machine { created: String::new(), ..worker() });
    assert_eq!(world.verify(&token).await.unwrap().launched, None);
}

#[tokio::test]
async fn other_machines_are_rejected() {
    let world = World::new();
    let other = |change: &dyn Fn(&mut Machine)| {
        let mut machine = worker();
        change(&mut machine);
        machine
    };
    world.azure.put(
        NODES,
        1,
        other(&|machine| machine.vm_id = "5c08b38e-0000-4c23-ac45-000000000001".into()),
    );
    world.azure.put(
        NODES,
        2,
        other(&|machine| drop(machine.tags.insert(CLUSTER_TAG.into(), "x.c.example.com".into()))),
    );
    world.azure.put(NODES, 3, other(&|machine| drop(machine.tags.remove(CLUSTER_TAG))));
    world.azure.put(NODES, 4, other(&|machine| drop(machine.tags.remove(INSTANCE_GROUP_TAG))));
    world.azure.put(NODES, 5, other(&|machine| machine.power = "stopped".into()));
    world.azure.put(NODES, 6, other(&|machine| machine.private_ips.clear()));
    for (number, reason) in [
        (1, "DocumentOfOtherMachine"),
        (2, "InstanceOfOtherCluster"),
        (3, "InstanceOfOtherCluster"),
        (4, "InstanceGroupUnknown"),
        (5, "InstanceNotRunning"),
        (6, "NoPrivateAddress"),
        (7, "InstanceNotFound"),
    ] {
        assert_eq!(world.reason(&world.token(number, &own())).await, reason, "{number}");
    }
    let vm_id = own();
    let document = Document::new(&vm_id, BODY, NOW);
    // The document is signed with keys that are not Azure's. The first key's certificate has Azure's name. The second key's certificate has
    // a different name.
    let liar = MetadataService::generate().unwrap();
    assert_eq!(world.reason(&liar.token(NODES, 0, &document).unwrap()).await, "WrongSignature");
    let other_name = MetadataService::named("metadata.azure.com.evil.example", "", (1975, 4096)).unwrap();
    assert_eq!(world.reason(&other_name.token(NODES, 0, &document).unwrap()).await, "WrongSignature");
    // The token belongs to a machine in another subscription, and names a machine of this cluster.
    let elsewhere = Document { subscription: "0f3a7e62-0000-4000-8000-000000000002", ..document.clone() };
    assert_eq!(world.reason(&world.metadata.token(NODES, 0, &elsewhere).unwrap()).await, "MalformedToken");
    let token = world.token(0, &own());
    for (before, after) in [
        (SUBSCRIPTION, "0f3a7e62-0000-4000-8000-000000000002"),
        (RESOURCE_GROUP, "other"),
        (NODES, "nodes.d"),
    ] {
        assert_eq!(
            world.reason(&token.replacen(before, after, 1)).await,
            "InstanceOfOtherCluster",
            "{after}"
        );
    }
    assert_eq!(world.verify_at(&token, b"{\"x\":1}", NOW).await.unwrap_err().reason, "TokenOfOtherRequest");
    for now in [NOW + 421, NOW - 121] {
        assert_eq!(world.verify_at(&token, BODY, now).await.unwrap_err().reason, "TokenExpired");
    }
    let long = format!("{token}{}", "A".repeat(1 << 20));
    let unsigned = token.rsplit_once(' ').unwrap().0.to_owned();
    for garbage in [
        "x-azure-id ",
        "x-azure-id x y",
        &long,
        &unsigned,
        &format!("{unsigned} "),
        &format!("{unsigned} e30="),
    ] {
        assert_eq!(world.reason(garbage).await, "MalformedToken");
    }
    let presented = Presented {
        token: "x-aws-sts e30=",
        body: BODY,
        origin: Origin::from_address([10, 0, 0, 1].into()),
        now: NOW,
    };
    assert!(world.verifier.examine(&presented).is_none());
}

#[tokio::test]
async fn an_unreachable_service_is_not_a_permanent_rejection() {
    for mood in [Mood::Down, Mood::Forbidding, Mood::WithoutGroup, Mood::Throttling(1), Mood::Babbling] {
        let world = World::new();
        world.azure.set_mood(mood);
        let refusal = world.verify(&world.token(0, &own())).await.unwrap_err();
        assert_eq!((refusal.reason, refusal.answer), ("AzureUnavailable", Answer::Unavailable), "{mood:?}");
        assert!(!refusal.message.contains("a-token"), "{}", refusal.message);
    }
}

#[tokio::test]
async fn signatures_are_checked_after_the_machine_is_found_and_lies_cost_one_list() {
    let world = World::new();
    let liar = MetadataService::generate().unwrap();
    for (number, vm_id, expected) in [
        (0, own(), None),
        (0, "5c08b38e-0000-4c23-ac45-000000000001".to_owned(), Some("DocumentOfOtherMachine")),
        (1, own(), Some("InstanceNotFound")),
        (2, own(), Some("InstanceNotFound")),
    ] {
        let token = liar.token(NODES, number, &Document::new(&vm_id, BODY, NOW)).unwrap();
        let origin = Origin::from_address([10, 0, 0, 1].into());
        let presented = Presented { token: &token, body: BODY, origin, now: NOW };
        let examined = world.verifier.examine(&presented).unwrap().ok().unwrap();
        assert_eq!(examined.verification.await.err().map(|refusal| refusal.reason), expected, "{number}");
        // The test checks the signature after the machine is found, as the server does.
        let signature = examined.signature.unwrap().await;
        assert_eq!(signature.unwrap_err().reason, "WrongSignature");
    }
    let lists = world.azure.calls().len();
    assert!(lists <= 4, "{:?}", world.azure.calls());
}

/// Peers can cause signature checks before they are verified, so the checks must not block the server.
#[test]
fn a_signature_check_delays_no_other_request() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(1).build().unwrap().block_on(async {
        let world = World::new();
        let examine = |token: &str| {
            let origin = Origin::from_address([10, 0, 0, 1].into());
            let presented = Presented { token, body: BODY, origin, now: NOW };
            world.verifier.examine(&presented).unwrap().ok().unwrap()
        };
        // The check waits for the only blocking thread, which is busy.
        let (release, held) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || held.recv());
        let mut checking = examine(&world.token(0, &own())).signature.unwrap();
        let other = examine(&world.token(0, &own())).verification;
        tokio::select! {
            biased;
            checked = &mut checking => panic!("it was checked on the thread of all requests: {checked:?}"),
            found = other => assert_eq!(found.unwrap().node_name, "nodes000000"),
        }
        drop(release);
        checking.await.unwrap();
    });
}

#[tokio::test]
async fn documents_above_the_limits_are_rejected() {
    let world = World::new();
    let vm_id = own();
    let decoys: Vec<Vec<u8>> = (0..7).map(|_| MetadataService::generate().unwrap().issuer).collect();
    let document = |beside| Document { beside, ..Document::new(&vm_id, BODY, NOW) };
    for (beside, expected) in [(0, None), (1, None), (2, Some("MalformedToken")), (7, Some("MalformedToken"))]
    {
        let token = world.metadata.token(NODES, 0, &document(&decoys[..beside])).unwrap();
        assert_eq!(world.verify(&token).await.err().map(|refusal| refusal.reason), expected, "{beside}");
    }
    let long = [vec![0; 8 * 1024]];
    let token = world.metadata.token(NODES, 0, &document(&long)).unwrap();
    assert_eq!(world.reason(&token).await, "MalformedToken");
}

#[tokio::test]
async fn unsigned_tokens_of_older_kops_are_accepted_only_if_configured() {
    let world = World::new();
    let machine = Machine { vm_id: "5c08b38e-4d57-4c23-ac45-aca61037f084".into(), ..worker() };
    world.azure.put(NODES, 0, machine.clone());
    let of_1_36 =
        |vm_id: &str| format!("x-azure-id {} {vm_id}", kops_agent_tests::azure::resource_id(NODES, 0));
    let of_1_34 = |vm_id: &str| format!("x-azure-id {vm_id} {NODES} 0");
    let forms: [&dyn Fn(&str) -> String; 2] = [&of_1_36, &of_1_34];
    for form in forms {
        assert_eq!(world.reason(&form(&machine.vm_id)).await, "MalformedToken");
    }
    let world = World { verifier: world.verifier.taking_unsigned(true), ..world };
    for form in forms {
        let unsigned = form(&machine.vm_id);
        assert_eq!(world.verify(&unsigned).await.unwrap().node_name, "nodes000000");
        let other = form("5c08b38e-4d57-4c23-ac45-aca61037f085");
        assert_eq!(world.reason(&other).await, "DocumentOfOtherMachine");
        let presented = Presented {
            token: &unsigned,
            body: BODY,
            origin: Origin::from_address([10, 0, 0, 1].into()),
            now: NOW,
        };
        let examined = world.verifier.examine(&presented).unwrap().ok().unwrap();
        assert!(matches!(examined.proof, Proof::CallBack { .. }) && examined.signed_at.is_none());
    }
}
