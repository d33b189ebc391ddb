//! Machines on Azure. Their requests have a signed document, and the server calls them back. Sends the requests of a
//! node to kops-agent's server.

use std::sync::LazyLock;

use kops_agent_cloud::callback::CallbackServer;
use kops_agent_cluster::bootstrap::challenge::PORT;
use kops_agent_cluster::bootstrap::message::{API_VERSION, BootstrapRequest, BootstrapResponse};
use kops_agent_tests::azure::metadata::{Document, MetadataService};
use kops_agent_tests::azure::{Machine, resource_id};
use kops_agent_tests::kops_releases::{AzureToken, RELEASES, certificates_request, configuration_request};

use super::hetzner::{address, assert_is_for};
use super::*;

pub(super) const NODES: &str = "nodes.c.example.com";

/// One metadata service for all tests, because generating its key is slow.
static METADATA: LazyLock<MetadataService> = LazyLock::new(|| MetadataService::generate().unwrap());

/// A verifier that queries this fake Azure. It also accepts tokens without an attested document, as kOps 1.36 and older send them.
pub(super) fn verifier(azure: &Azure) -> AzureVerifier {
    let arm = Arm::for_tests(&azure.url(), SUBSCRIPTION, RESOURCE_GROUP, CloudCalls::default());
    let cluster = AzureCluster {
        name: CLUSTER.into(),
        subscription: SUBSCRIPTION.into(),
        resource_group: RESOURCE_GROUP.into(),
    };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(METADATA.root.clone())).unwrap();
    let attestation = Attestation::new(Arc::new(roots), "http://127.0.0.1:1/pkiops/certs/").unwrap();
    AzureVerifier::new(ScaleSets::new(arm, cluster), attestation).taking_unsigned(true)
}

/// A worker that listens for the server's call-back.
pub(super) struct Worker {
    number: u32,
    pub(super) machine: Machine,
    call_back: CallbackServer,
}

impl Worker {
    pub(super) async fn new(world: &World, number: u32) -> Worker {
        let address = address();
        let machine = Machine::of_group(CLUSTER, "nodes", &format!("nodes{number:06}"), address);
        world.azure.put(NODES, number, machine.clone());
        let authorities = world.authority.pem.clone();
        let call_back =
            CallbackServer::start(CLUSTER, &authorities, SocketAddr::new(address, PORT)).await.unwrap();
        Worker { number, machine, call_back }
    }

    /// A request with a new challenge.
    pub(super) fn body(&self) -> Vec<u8> {
        let key = KeyPair::generate().unwrap();
        let names = ["kubelet", "kubelet-server"];
        let request = BootstrapRequest {
            api_version: API_VERSION.into(),
            certs: Some(names.map(|name| (name.to_owned(), public_key(&key))).into()),
            keypair_ids: Some([("kubernetes-ca".to_owned(), "7".to_owned())].into()),
            include_node_config: true,
            include_boot_config: false,
            include_program: false,
            challenge: Some(self.call_back.challenge().unwrap()),
        };
        serde_json::to_vec(&request).unwrap()
    }

    pub(super) fn token(&self, body: &[u8]) -> String {
        let document = Document::new(&self.machine.vm_id, body, seconds(SystemTime::now()));
        METADATA.token(NODES, self.number, &document).unwrap()
    }
}

#[tokio::test]
async fn a_machine_that_azure_vouches_for_and_that_answers_its_call_back_becomes_a_node() {
    let world = World::new().await;
    let worker = Worker::new(&world, 0).await;
    let body = worker.body();
    let (status, answer) = world.ask(&worker.token(&body), body.clone()).await;
    assert_eq!(status, 200, "{answer}");
    let answer: BootstrapResponse = serde_json::from_str(&answer).unwrap();
    let certificates = answer.certs;
    assert_is_for(&certificates["kubelet"], "O=system:nodes, CN=system:node:nodes000000", &[]);
    assert_is_for(&certificates["kubelet-server"], "CN=nodes000000", &worker.machine.private_ips);

    // A second document for the same request counts as the same token.
    let (status, _) = world.ask(&worker.token(&body), body).await;
    assert_eq!((status, world.counted("TokenReplayed")), (403, true));
    world.ready.lock().insert("nodes000000".into());
    let body = worker.body();
    assert_eq!(world.ask(&worker.token(&body), body).await.0, 409);
}

/// Sends both requests that nodeup makes, with the token format of each release.
#[tokio::test]
async fn nodeup_of_each_release_becomes_a_node() {
    let world = World::new().await;
    let mut worker = Worker::new(&world, 0).await;
    worker.machine.vm_id = "5c08b38e-4d57-4c23-ac45-aca61037f084".into();
    world.azure.put(NODES, 0, worker.machine.clone());
    let vm_id = &worker.machine.vm_id;
    for release in &RELEASES {
        let challenge = || serde_json::to_string(&worker.call_back.challenge().unwrap()).unwrap();
        let token = |body: &str| match release.azure_token {
            AzureToken::ScaleSet => format!("x-azure-id {vm_id} {NODES} 0"),
            AzureToken::Id => format!("x-azure-id {} {vm_id}", resource_id(NODES, 0)),
            AzureToken::Document => worker.token(body.as_bytes()),
        };
        let body = configuration_request(Some(&challenge()));
        let (status, answer) = world.ask(&token(&body), body.into_bytes()).await;
        assert_eq!(status, 200, "{}: {answer}", release.name);
        assert_eq!(
            answer,
            "{\"nodeConfig\":{\"nodeupConfig\":\"Networking: {}\\n\",\"nodeSecrets\":{\"dockerconfig\":\"e30=\"}}}\n"
        );
        let certs = json!({"kubelet": public_key(&KeyPair::generate().unwrap())}).to_string();
        let body = certificates_request(&certs, r#"{"kubernetes-ca":"7"}"#, Some(&challenge()));
        let (status, answer) = world.ask(&token(&body), body.into_bytes()).await;
        assert_eq!(status, 200, "{}: {answer}", release.name);
        let answer: BootstrapResponse = serde_json::from_str(&answer).unwrap();
        assert_is_for(&answer.certs["kubelet"], "O=system:nodes, CN=system:node:nodes000000", &[]);
    }
}

#[tokio::test]
async fn a_document_is_no_more_than_half_of_the_proof() {
    let world = World::new().await;
    let (own, other) = (Worker::new(&world, 0).await, Worker::new(&world, 1).await);
    // A pod can reach the metadata service of its machine, but cannot answer on the machine's call-back port.
    let body = other.body();
    assert_eq!(world.ask(&own.token(&body), body).await, (400, "callback failed".to_owned()));
    // A request without a challenge causes no call to Azure.
    let asked = world.azure.calls().len();
    let body = br#"{"apiVersion": "bootstrap.kops.k8s.io/v1alpha1", "includeNodeConfig": true}"#.to_vec();
    assert_eq!(world.ask(&own.token(&body), body).await, (400, "callback failed".to_owned()));
    assert_eq!(world.azure.calls().len(), asked);
    // The token has the document of another machine, but the challenge is of this machine.
    let body = own.body();
    let document = Document::new(&other.machine.vm_id, &body, seconds(SystemTime::now()));
    let token = METADATA.token(NODES, 0, &document).unwrap();
    assert_eq!(world.ask(&token, body).await.0, 403);
    assert!(
        world.counted("CallbackFailed")
            && world.counted("DocumentOfOtherMachine")
            && !world.counted("Granted")
    );
}

#[tokio::test]
async fn a_machine_of_a_group_of_control_planes_gets_nothing() {
    let world = World::with_control_planes().await;
    let worker = Worker::new(&world, 0).await;
    let body = worker.body();
    assert_eq!(world.ask(&worker.token(&body), body).await.0, 403);
    assert!(world.counted("GroupOfOtherRole") && !world.counted("Granted"));
}
