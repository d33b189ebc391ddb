//! Machines without a cloud, which are enrolled with a key.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, SigningKey as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Ground, Lot, Running};
use crate::boot_to_label::upstream::{claims, now};
use crate::cluster::Cluster;
use crate::pod_ranges::{host, let_machines_be_enrolled};
use crate::scale::create_objects;

/// The key with which machines sign, and the key with which liars sign.
pub struct Metal([KeyPair; 2]);

impl Ground for Metal {
    const NAME: &'static str = "metal";
    const KOPS_WRITES_CONFIGS: bool = false;

    fn start() -> Metal {
        Metal([(); 2].map(|()| KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()))
    }

    fn cluster(&self) -> Cluster {
        let cluster = Cluster::start_on(Self::NAME, Vec::new());
        let_machines_be_enrolled(&cluster);
        cluster
    }

    fn create(&self, cluster: &Cluster, lot: Lot) {
        self.create_all(cluster, &[lot]);
    }

    fn create_all(&self, cluster: &Cluster, lots: &[Lot]) {
        let key = self.0[0].public_key_pem();
        create_objects(cluster, lots.iter().map(|lot| host(&lot.name(), &key, &[])).collect());
    }

    fn provider_id(&self, _lot: Lot) -> String {
        String::new()
    }

    /// The number of requests that list `Host` objects, as the API server counts them.
    fn calls(&self, cluster: &Cluster) -> usize {
        cluster.requests("hosts", "LIST")
    }

    /// The API server lists all `Host` objects in one response.
    fn fewest_calls(_nodes: usize) -> usize {
        1
    }

    const REFUSED_FOR: &'static str = "WrongSignature";

    fn upstreams_token(&self, lot: Lot, body: &[u8]) -> String {
        let data = json!({
            "instance": lot.name(), "keyID": self.0[0].public_key_pem(), "timestamp": now(),
            "requestHash": STANDARD.encode(Sha256::digest(body)), "audience": "kops.k8s.io/node-bootstrap",
        });
        let data = data.to_string();
        let signature = STANDARD.encode(self.0[0].sign(data.as_bytes()).unwrap());
        let token = json!({"signature": signature, "data": STANDARD.encode(data)});
        format!("x-pki-tpm {}", STANDARD.encode(token.to_string()))
    }

    fn check_as_upstream(&self, lot: Lot, token: &str, body: &[u8]) {
        let claims = claims(token, "x-pki-tpm ", &["keyID"], body);
        assert_eq!(claims["instance"], lot.name());
        assert_eq!(claims["keyID"], self.0[0].public_key_pem().replace('\r', ""));
    }

    fn server(&self) -> Value {
        json!({"provider": {}, "pki": {"MaxTimeSkew": 300}})
    }

    fn serve_metadata(&self, _lot: Lot, _liar: Option<Ipv4Addr>) -> Running {
        Box::new(())
    }

    fn equip(&self, root: &Path, is_liar: bool) -> Option<Running> {
        let file = root.join("etc/kubernetes/kops/pki/machine/private.pem");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, self.0[usize::from(is_liar)].serialize_pem()).unwrap();
        None
    }
}
