//! Changes the keysets of a cluster's store like `kops create keypair`, `kops promote keypair` and `kops distrust keypair`
//! (upstream: `AddItem` in `upup/pkg/fi/ca.go`, `cmd/kops/promote_keypair.go`, `cmd/kops/distrust_keypair.go`).

use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_tests::example_keys::{DISTRUSTED, Keyset, edit_keyset};
use serde_yaml::Value;

use crate::store::Store;

/// The difference between the id of a new key and the id of the primary key.
const NEXT: u64 = 100_000_000;

impl Store {
    /// Adds a key to a keyset, and returns the key's id. The key is trusted, but does not sign yet.
    pub fn create_keypair(&self, keyset: &str) -> String {
        let id = self.primary_id(keyset).parse::<u64>().unwrap() + NEXT;
        let made = Keyset::make(keyset, id).unwrap().yaml();
        let made: Value = serde_yaml::from_str(&made).unwrap();
        self.edit_keyset(keyset, |spec| {
            spec["keys"].as_sequence_mut().unwrap().push(made["spec"]["keys"][0].clone());
        });
        id.to_string()
    }

    /// Makes a key the primary key of a keyset. Only the primary key signs.
    pub fn promote_keypair(&self, keyset: &str, id: &str) {
        self.edit_keyset(keyset, |spec| spec["primaryId"] = id.into());
    }

    pub fn distrust_keypair(&self, keyset: &str, id: &str) {
        self.edit_keyset(keyset, |spec| {
            let keys = spec["keys"].as_sequence_mut().unwrap();
            let key = keys.iter_mut().find(|key| key["id"] == id).unwrap();
            key["distrustTimestamp"] = DISTRUSTED.into();
        });
    }

    pub fn primary_id(&self, keyset: &str) -> String {
        self.keyset(keyset)["spec"]["primaryId"].as_str().unwrap().to_owned()
    }

    /// The primary key of a keyset, with its certificate.
    pub fn primary(&self, keyset: &str) -> Keyset {
        let (id, document) = (self.primary_id(keyset), self.keyset(keyset));
        let keys = document["spec"]["keys"].as_sequence().unwrap();
        let key = keys.iter().find(|key| key["id"] == id.as_str()).unwrap();
        Keyset {
            name: keyset.to_owned(),
            id: id.parse().unwrap(),
            certificate: material(key, "publicMaterial"),
            private_key: material(key, "privateMaterial"),
        }
    }

    /// The certificates of the keys that are trusted, oldest first.
    pub fn trusted_certificates(&self, keyset: &str) -> String {
        let document = self.keyset(keyset);
        let keys = document["spec"]["keys"].as_sequence().unwrap().iter();
        keys.filter(|key| key["distrustTimestamp"].is_null())
            .map(|key| material(key, "publicMaterial"))
            .collect()
    }

    fn file(&self, keyset: &str) -> PathBuf {
        self.path(&format!("pki/private/{keyset}/keyset.yaml"))
    }

    fn keyset(&self, keyset: &str) -> Value {
        serde_yaml::from_str(&fs::read_to_string(self.file(keyset)).unwrap()).unwrap()
    }

    fn edit_keyset(&self, keyset: &str, edit: impl FnOnce(&mut Value)) {
        edit_keyset(&self.file(keyset), edit).unwrap();
    }
}

fn material(key: &Value, field: &str) -> String {
    String::from_utf8(STANDARD.decode(key[field].as_str().unwrap()).unwrap()).unwrap()
}
