#![allow(clippy::unwrap_used)]
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kops_agent_cluster::bootstrap::challenge::{caller_name, server_name};
use kops_agent_cluster::bootstrap::message::ChallengeRequest;
use kops_agent_pki::PemPair;
use kops_agent_tests::authority::{Authority, common_name};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::server::{CONNECTIONS, Deadlines};
use super::*;
use kops_agent_net::tls;

const CLUSTER: &str = "c.example.com";
const RANDOM: [u8; 16] = [7; 16];
/// A timeout that is longer than any step takes, even on a busy machine.
const AMPLE: Duration = Duration::from_secs(600);

fn new_authority() -> Authority {
    kops_agent_net::tls::install_provider();
    Authority::new("kubernetes-ca").unwrap()
}

fn identity_of(authority: &Authority, name: &str) -> PemPair {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let issued = authority.issue(&params).unwrap();
    PemPair { certificate: issued.certificate, private_key: issued.private_key }
}

async fn machine(authority: &Authority) -> CallbackServer {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    CallbackServer::start(CLUSTER, &authority.pem, address).await.unwrap()
}

/// A machine whose connections do not time out: a connection ends only if a new connection replaces it.
async fn slow_machine(authority: &Authority) -> CallbackServer {
    let deadlines = Deadlines { handshake: AMPLE, call: AMPLE, refused: AMPLE };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    CallbackServer::start_with(deadlines, CLUSTER, &authority.pem, address).await.unwrap()
}

#[tokio::test]
async fn the_server_waits_briefly_for_a_busy_port_and_then_fails() {
    let authority = new_authority();
    let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = held.local_addr().unwrap();
    let start = || CallbackServer::start(CLUSTER, &authority.pem, address);
    let error = start().await.unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("in use"), "{error}");
    // The first attempt must find the port in use, so the port is released after this attempt.
    let (started, ()) = tokio::join!(start(), async { drop(held) });
    started.unwrap();
}

fn address(challenge: &ChallengeRequest) -> SocketAddr {
    challenge.endpoint.parse().unwrap()
}

async fn call(challenge: &ChallengeRequest, identity: &PemPair) -> Result<Proof, CallFailed> {
    Caller::new(CLUSTER).within(AMPLE).call(address(challenge), challenge, identity, RANDOM).await
}

/// In kOps 1.34.0 and 1.34.1, nodeup sends the constant hash `CONSTANT` as its proof, and kops-controller accepts no other proof.
#[tokio::test]
async fn the_form_of_the_proof_changes_after_a_rejected_proof() {
    let authority = new_authority();
    let (machine, identity) = (machine(&authority).await, identity_of(&authority, &caller_name(CLUSTER)));
    let proof = async || call(&machine.challenge().unwrap(), &identity).await.unwrap();
    machine.refused();
    assert_eq!(proof().await, Proof::OfSecret, "no challenge was answered before");
    machine.refused();
    assert_eq!([proof().await, proof().await], [Proof::Constant; 2]);
    machine.refused();
    machine.refused();
    assert_eq!(proof().await, Proof::OfSecret);
    // Even with the constant proof, the machine must present the certificate from its request, because the caller pins this certificate.
    machine.refused();
    let mut lie = machine.challenge().unwrap();
    lie.ca.0 = kops_agent_pki::self_signed(&server_name(CLUSTER), time::OffsetDateTime::now_utc())
        .unwrap()
        .certificate
        .into_bytes();
    assert!(matches!(call(&lie, &identity).await, Err(CallFailed::NotAnswered(..))));
}

#[tokio::test]
async fn a_machine_proves_its_request_once() {
    let authority = new_authority();
    let (machine, identity) = (machine(&authority).await, identity_of(&authority, &caller_name(CLUSTER)));
    let challenge = machine.challenge().unwrap();
    assert_eq!(call(&challenge, &identity).await.unwrap(), Proof::OfSecret);
    let again = call(&challenge, &identity).await.unwrap_err();
    assert!(matches!(&again, CallFailed::Refused(_, status) if status == "5"), "{again}");

    let old = machine.challenge().unwrap();
    let new = machine.challenge().unwrap();
    assert!(
        matches!(call(&old, &identity).await, Err(CallFailed::Refused(..))),
        "a later request took its place"
    );
    assert_eq!(call(&new, &identity).await.unwrap(), Proof::OfSecret);
}

#[tokio::test]
async fn a_machine_without_secret_or_challenge_proves_nothing() {
    let authority = new_authority();
    let (machine, identity) = (machine(&authority).await, identity_of(&authority, &caller_name(CLUSTER)));
    // The request has the id of the challenge, but a wrong secret.
    let mut lie = machine.challenge().unwrap();
    lie.challenge_secret.0[0] ^= 1;
    assert!(matches!(call(&lie, &identity).await, Err(CallFailed::Unproven(_))));
    // The certificate in the request is not the machine's certificate.
    let mut lie = machine.challenge().unwrap();
    lie.ca.0 = kops_agent_pki::self_signed(&server_name(CLUSTER), time::OffsetDateTime::now_utc())
        .unwrap()
        .certificate
        .into_bytes();
    assert!(matches!(call(&lie, &identity).await, Err(CallFailed::NotAnswered(..))));
    let mut lie = machine.challenge().unwrap();
    lie.challenge_id.clear();
    assert!(matches!(call(&lie, &identity).await, Err(CallFailed::Incomplete("challengeID"))));
    let silent = machine.challenge().unwrap();
    drop(machine);
    let error = call(&silent, &identity).await.unwrap_err().to_string();
    assert!(error.contains("does not answer the call-back"), "{error}");
}

/// Raises the limit of open files: this process has both ends of all connections.
fn allow_many_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
}

/// Connects from a loopback address. In these tests, kops-controller connects from 127.0.0.1.
async fn connect_from(from: [u8; 4], challenge: &ChallengeRequest) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    socket.connect(address(challenge)).await.unwrap()
}

/// In some pod networks, a machine sees each pod's own address, so silent connections may come from many addresses.
#[tokio::test]
async fn silent_connections_from_many_addresses_do_not_block_kops_controller() {
    allow_many_files();
    let authority = new_authority();
    let (machine, identity) =
        (slow_machine(&authority).await, identity_of(&authority, &caller_name(CLUSTER)));
    let challenge = machine.challenge().unwrap();
    let mut silent = Vec::new();
    for number in 0..CONNECTIONS as u16 + 8 {
        let [high, low] = number.to_be_bytes();
        silent.push(connect_from([127, 7, high + 1, low], &challenge).await);
    }
    assert_eq!(call(&challenge, &identity).await.unwrap(), Proof::OfSecret);
    // A newer connection has replaced the oldest connection.
    let ended = silent[0].read(&mut [0; 1]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

/// Both kops-controller's address and other addresses send garbage.
#[tokio::test]
async fn garbage_from_kops_controllers_address_does_not_block_it() {
    let authority = new_authority();
    let (machine, identity) =
        (slow_machine(&authority).await, identity_of(&authority, &caller_name(CLUSTER)));
    let challenge = machine.challenge().unwrap();
    let from = |number: u8| if number == 0 { [127, 0, 0, 1] } else { [127, 8, 0, number] };
    for number in 0..64 {
        let mut liar = connect_from(from(number), &challenge).await;
        liar.write_all(b"no TLS at all, and enough of it for a record\r\n\r\n").await.unwrap();
        // The server closes the connection after garbage.
        liar.read_to_end(&mut Vec::new()).await.ok();
    }
    let mut silent = Vec::new();
    for number in 1..64 {
        silent.push(connect_from(from(number), &challenge).await);
    }
    assert_eq!(call(&challenge, &identity).await.unwrap(), Proof::OfSecret);
}

/// Pods on the machine can connect to the call-back port, as kops-controller does. They can keep connections open and send nothing.
#[tokio::test]
async fn silent_connections_do_not_block_kops_controller() {
    let authority = new_authority();
    let (machine, identity) =
        (slow_machine(&authority).await, identity_of(&authority, &caller_name(CLUSTER)));
    allow_many_files();
    let challenge = machine.challenge().unwrap();
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS + 4 {
        silent.push(TcpStream::connect(address(&challenge)).await.unwrap());
    }
    assert_eq!(call(&challenge, &identity).await.unwrap(), Proof::OfSecret);
}

#[tokio::test]
async fn a_handshake_times_out() {
    let authority = new_authority();
    let machine = machine(&authority).await;
    let challenge = machine.challenge().unwrap();
    let mut silent = TcpStream::connect(address(&challenge)).await.unwrap();
    let ended = silent.read(&mut [0; 1]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn silent_connections_with_a_node_certificate_do_not_block_kops_controller() {
    let authority = new_authority();
    let machine = slow_machine(&authority).await;
    let challenge = machine.challenge().unwrap();
    let node = identity_of(&authority, "system:node:i-1");
    let config = tls::client_config_pinned_to(&challenge.ca.0, &node.certificate, &node.private_key).unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    allow_many_files();
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS + 4 {
        let socket = TcpStream::connect(address(&challenge)).await.unwrap();
        let name = server_name(CLUSTER).try_into().unwrap();
        held.push(connector.connect(name, socket).await.unwrap());
    }
    let identity = identity_of(&authority, &caller_name(CLUSTER));
    assert_eq!(call(&challenge, &identity).await.unwrap(), Proof::OfSecret);
}

#[tokio::test]
async fn only_the_clusters_kops_controller_gets_an_answer() {
    let authority = new_authority();
    let machine = machine(&authority).await;
    let challenge = machine.challenge().unwrap();
    let node = identity_of(&authority, "system:node:i-1");
    let error = call(&challenge, &node).await.unwrap_err();
    assert!(matches!(&error, CallFailed::Refused(_, status) if status == "16"), "{error}");
    let stranger = identity_of(&new_authority(), &caller_name(CLUSTER));
    assert!(matches!(call(&challenge, &stranger).await, Err(CallFailed::NotAnswered(..))));
    // If many authorities had one name, webpki would try them in all orders, which takes seconds.
    let mut with_others = identity_of(&authority, &caller_name(CLUSTER));
    with_others.certificate.push_str(&authority.pem);
    (0..20).for_each(|_| with_others.certificate.push_str(&new_authority().pem));
    assert!(matches!(call(&challenge, &with_others).await, Err(CallFailed::NotAnswered(..))));
    // The failed call did not use up the challenge.
    let proof = call(&challenge, &identity_of(&authority, &caller_name(CLUSTER))).await.unwrap();
    assert_eq!(proof, Proof::OfSecret);
}
