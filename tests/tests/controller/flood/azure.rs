//! Lies of machines on Azure. The honest machines are enrolled with their own keys, because a call-back needs an answer from the
//! machine's own port.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_tests::authority::Authority;
use kops_agent_tests::azure::metadata::{Document, MetadataService};
use kops_agent_tests::azure::{Azure as ResourceManager, Machine, resource_id};
use kops_agent_tests::example_keys::Keyset;
use kops_agent_tests::ports::free_port;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, SigningKey as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use super::honest::Granted;
use super::lies::{BAD_REQUEST, FORBIDDEN, Insider, Lie, once_more, with_challenge, with_token};
use super::{CALM, HONEST, INSIDERS, now};
use crate::bootstrap::World;
use crate::cluster::{CLUSTER, Cluster};
use crate::pod_ranges::{host, let_machines_be_enrolled};
use crate::scale::create_objects;

/// The number of a machine in the scale set. The liars know this machine's data.
const KNOWN: u32 = 7;

/// A cluster on Azure, with enrolled machines and with liars.
pub struct Azure {
    pub world: World,
    resource_manager: ResourceManager,
    /// Two metadata services. The controller trusts only the first.
    signing: [Arc<MetadataService>; 2],
    key: Arc<KeyPair>,
    _authorities: NamedTempFile,
}

impl Azure {
    /// Starts a cluster whose machines have not joined yet.
    pub fn start() -> Azure {
        let resource_manager = ResourceManager::start().unwrap();
        let signing = [(); 2].map(|()| Arc::new(MetadataService::generate().unwrap()));
        let authorities = NamedTempFile::new().unwrap();
        fs::write(authorities.path(), &signing[0].root_pem).unwrap();
        let variables = vec![
            ("AZURE_RESOURCE_MANAGER_ENDPOINT", resource_manager.url()),
            ("AZURE_POD_IDENTITY_AUTHORITY_HOST", resource_manager.url()),
            ("SSL_CERT_FILE", authorities.path().display().to_string()),
        ];
        let cluster = Cluster::start_on("azure", variables);
        let_machines_be_enrolled(&cluster);
        let key = Arc::new(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap());
        let public_key = key.public_key_pem();
        let hosts = (0..HONEST + CALM + INSIDERS).map(|number| host(&name(number), &public_key, &[]));
        create_objects(&cluster, hosts.collect());
        resource_manager.put(&scale_set(), KNOWN, known());
        let authority = Keyset::make("kubernetes-ca", 7).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
        let options = json!({"provider": {"azure": {}}, "pki": {"MaxTimeSkew": 300}});
        let world = World::signed_by(&authority, address, cluster, &options);
        Azure { world, resource_manager, signing, key, _authorities: authorities }
    }

    /// A valid token of the machine with this number.
    pub fn token(&self, number: usize, body: &str) -> String {
        token(&self.key, &name(number), body)
    }

    /// Makes valid tokens for the machines that liars control, for one machine after the other.
    pub fn insider(&self) -> Insider {
        let key = self.key.clone();
        Arc::new(move |body| token(&key, &name(HONEST + CALM + body.len() % INSIDERS), body))
    }

    pub fn calls(&self) -> usize {
        self.resource_manager.calls().len()
    }

    /// All lies of the flood on Azure: requests with wrong documents in their tokens.
    pub fn lies(&self, granted: &Arc<Granted>) -> Vec<Lie> {
        let (trusted, liar) = (&self.signing[0], &self.signing[1]);
        let decoys: Vec<Vec<u8>> = (0..7).map(|_| decoy()).collect();
        let document =
            |what, expected, signing: &Arc<MetadataService>, number, vm_id: String, beside: &[Vec<u8>]| {
                let (signing, beside) = (signing.clone(), beside.to_vec());
                with_challenge(what, expected, move |_, body| {
                    let document =
                        Document { beside: &beside, ..Document::new(&vm_id, body.as_bytes(), now()) };
                    signing.token(&scale_set(), number, &document).unwrap()
                })
            };
        let (own, other) = (known().vm_id, "5c08b38e-0000-4c23-ac45-000000000001".to_owned());
        vec![
            with_token("no document", FORBIDDEN, |_, _| {
                format!("x-azure-id {} e30=", resource_id(&scale_set(), KNOWN))
            }),
            with_token("8 KiB that are no document", FORBIDDEN, |_, _| {
                format!("x-azure-id {} {}", resource_id(&scale_set(), KNOWN), "A".repeat(8 << 10))
            }),
            document("a document with nine certificates", FORBIDDEN, liar, KNOWN, own.clone(), &decoys),
            document(
                "a document of three certificates that lead nowhere",
                FORBIDDEN,
                liar,
                KNOWN,
                own.clone(),
                &decoys[..1],
            ),
            document("a document of another machine", FORBIDDEN, liar, KNOWN, other, &[]),
            document("a document of a machine that there is not", FORBIDDEN, liar, 999, own.clone(), &[]),
            document("a document of a machine that does not answer", BAD_REQUEST, trusted, KNOWN, own, &[]),
            once_more(granted),
        ]
    }
}

fn scale_set() -> String {
    format!("nodes.{CLUSTER}")
}

fn name(number: usize) -> String {
    format!("nodes-{number:04}")
}

/// The machine whose data the liars know. Nothing listens at its address.
fn known() -> Machine {
    Machine::of_group(CLUSTER, "nodes", "nodes000007", [127, 0, 3, 7].into())
}

/// A CA with the name of the liars' CA, but with a different key.
fn decoy() -> Vec<u8> {
    let authority = Authority::new("TLS issuing CA of a test").unwrap();
    CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap().to_vec()
}

/// The token of an enrolled machine for a request.
fn token(key: &KeyPair, name: &str, body: &str) -> String {
    let data = json!({
        "instance": name, "keyID": key.public_key_pem(), "timestamp": now(),
        "requestHash": STANDARD.encode(Sha256::digest(body)), "audience": "kops.k8s.io/node-bootstrap",
    });
    let data = data.to_string();
    let signature = STANDARD.encode(key.sign(data.as_bytes()).unwrap());
    let token = json!({"signature": signature, "data": STANDARD.encode(data)});
    format!("x-pki-tpm {}", STANDARD.encode(token.to_string()))
}
