//! A running node renews its certificates, against a real API server (`docs/certificate-renewal.md`).

use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;

use kops_agent_tests::sts::Principal;
use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

use crate::bootstrap::{WithSts, World, request};
use crate::client::{connect, exchange, post};
use crate::cluster::{REGION, id};

const FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);

fn rsa_key() -> KeyPair {
    KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap()
}

/// A client that authenticates with this certificate and key.
pub fn showing(world: &World, certificate: &str, key: &KeyPair) -> Arc<ClientConfig> {
    let authority = fs::read(world.cluster.make_folder("pki").join("kubernetes-ca.crt")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate], key)
        .unwrap();
    Arc::new(config)
}

/// Requests a renewal for a new key. `shown` is the client's TLS configuration. Returns the status and the
/// body of the response.
fn renew(world: &WithSts, machine: &Principal, shown: &Arc<ClientConfig>) -> (u16, String) {
    let body = request(&rsa_key());
    let token = World::token_for(machine, &world.sts.host(), REGION, &body);
    let asked = post(&token, &body).replacen("POST /bootstrap ", "POST /renew ", 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let asking = async {
        let stream = connect(FROM, world.address).await.unwrap();
        exchange(stream, shown, &world.name, &asked).await
    };
    runtime.block_on(asking).unwrap_or_default()
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_node_renews_only_its_own_certificates_while_it_exists() {
    let world = WithSts::start();
    let controller = world.controller();
    let machine = world.machine(1);
    let key = rsa_key();
    let body = request(&key);
    let bootstrap = || world.ask(FROM, &World::token_for(&machine, &world.sts.host(), REGION, &body), &body);
    let (status, answer) = bootstrap();
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let shown = showing(&world, answer["Certs"]["kubelet"].as_str().unwrap(), &key);
    assert_eq!(renew(&world, &machine, &shown), (403, "NodeNotFound".to_owned()));

    world.cluster.create_node(&id(1), Some(&id(1)));
    world.cluster.report(&id(1));
    let (status, answer) = renew(&world, &machine, &shown);
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert!(answer["Certs"]["kubelet-server"].as_str().unwrap().contains("BEGIN CERTIFICATE"), "{answer}");

    let other = world.machine(2);
    assert_eq!(renew(&world, &other, &shown), (403, "CertificateOfOtherNode".to_owned()));

    // The Node is deleted. Later, a different machine gets a Node with this name.
    world.cluster.kubectl(&["delete", "node", &id(1)]);
    assert_eq!(renew(&world, &machine, &shown), (403, "NodeNotFound".to_owned()));
    world.cluster.create_node(&id(1), Some(&id(2)));
    assert_eq!(renew(&world, &machine, &shown), (403, "NodeOfOtherInstance".to_owned()));
    let metrics = controller.get("/metrics");
    assert!(
        metrics.contains(r#"kops_agent_renewal_requests_total{outcome="granted",reason="Granted"} 1"#),
        "{metrics}"
    );
}
