//! Replaces a CA in kOps' order: the new CA is trusted, then it signs, then the old CA is no longer trusted
//! (docs/operations/rotate-secrets.md). At any point between, and in any order of restarts, all sides verify each
//! other by rustls.

#[path = "../../tests/it/support/keyset.rs"]
mod keyset;

use std::sync::Arc;

use kops_agent_plan::resource::{CertificateType, File, Subject};
use kops_agent_tests::authority::{Authority, Pair};
use rcgen::KeyPair;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use time::Duration;
use time::macros::datetime;

use super::*;
use keyset::Keyset;

const NOW: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

fn authority(id: &str) -> PemPair {
    let key = KeyPair::generate().unwrap();
    let (from, to) = (NOW - Duration::days(300), NOW + Duration::days(3650));
    let authority = Authority::of_key(&format!("kubernetes-ca {id}"), key, from, to).unwrap();
    let Pair { certificate, private_key } = authority.pair();
    PemPair { certificate, private_key }
}

/// The files on a machine in one phase of the rotation.
struct Phase {
    certificate: String,
    ca: String,
    kubeconfig_ca: String,
}

/// The phases, each with its trusted CAs and its signing CA.
fn phases() -> Vec<Phase> {
    let (old, new) = (("1", authority("old")), ("2", authority("new")));
    [
        (vec![old.clone()], "1"),
        (vec![old.clone(), new.clone()], "1"),
        (vec![old, new.clone()], "2"),
        (vec![new], "2"),
    ]
    .into_iter()
    .map(|(trusted, signs)| phase(&Keyset(trusted), signs))
    .collect()
}

fn phase(keyset: &Keyset, signs: &str) -> Phase {
    let wanted = Certificate {
        name: "component".into(),
        signer: "kubernetes-ca".into(),
        keypair_id: signs.into(),
        certificate_type: CertificateType::ClientServer,
        subject: Subject { common_name: "component".into(), organization: vec![] },
        sans: vec!["component.example.com".into()],
        issuer: Issuer::Local,
        include_root: true,
    };
    let kubeconfig =
        Kubeconfig { certificate: "component".into(), server: "https://component.example.com".into() };
    let mut desired = DesiredState::default();
    desired.add(File::new("/component.kubeconfig", Content::Kubeconfig(kubeconfig.clone())));
    desired.add(wanted);
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    let mut certificates = Certificates::observe(&root, &desired, keyset, NOW, 0).unwrap();
    certificates.issue("component").unwrap();
    let text = certificates.kubeconfig(&kubeconfig).unwrap();
    let field = "certificate-authority-data: ";
    let encoded = text.lines().find_map(|line| line.trim().strip_prefix(field)).unwrap();
    let kubeconfig_ca = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, encoded).unwrap();
    Phase {
        certificate: certificates.certificate("component").unwrap(),
        ca: certificates.ca("component").unwrap(),
        kubeconfig_ca: String::from_utf8(kubeconfig_ca).unwrap(),
    }
}

fn chain(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().unwrap()
}

/// Whether a peer that trusts `ca` accepts this certificate, from a server and also from a client.
fn verifies(certificate: &str, ca: &str) -> bool {
    let mut roots = RootCertStore::empty();
    chain(ca).into_iter().for_each(|root| roots.add(root).unwrap());
    let (roots, provider) = (Arc::new(roots), Arc::new(default_provider()));
    let chain = chain(certificate);
    let now = u64::try_from(NOW.unix_timestamp()).unwrap();
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now));
    let name = ServerName::try_from("component.example.com").unwrap();
    let servers =
        WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone()).build().unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(roots, provider).build().unwrap();
    servers.verify_server_cert(&chain[0], &chain[1..], &name, &[], now).is_ok()
        && clients.verify_client_cert(&chain[0], &chain[1..], now).is_ok()
}

#[test]
fn all_sides_verify_each_other_in_any_order_of_restarts() {
    let phases = phases();
    for (at, pair) in phases.windows(2).enumerate() {
        // Between two phases, the server and the client may each have the files of either phase.
        for server in pair {
            for client in pair {
                assert!(verifies(&server.certificate, &client.ca), "between phases {at} and {}", at + 1);
                assert!(
                    verifies(&server.certificate, &client.kubeconfig_ca),
                    "kubeconfigs, after phase {at}"
                );
            }
        }
    }
    // In the last phase, the old CA is no longer trusted.
    assert!(!verifies(&phases[0].certificate, &phases[3].ca));
}

#[test]
fn a_chain_ends_with_the_signing_authority() {
    for phase in phases() {
        let chain = chain(&phase.certificate);
        assert_eq!(chain.len(), 2);
        assert!(
            verifies(&phase.certificate, &first_pem(&phase.ca)),
            "the signing CA is not the first trusted CA"
        );
    }
}
