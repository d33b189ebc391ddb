//! Key sets: `pki/private/<id>/keyset.yaml`, the keys and certificates of a cluster.

mod material;

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

pub use material::{Certificate, PrivateMaterial};

use super::error::SpecError;
use super::invalid::Invalid;
use super::metadata::{ObjectMeta, parse_object};
use super::respell::{Respelling, moved};
pub(super) use material::Base64;
use material::pem_block;

/// All keys with one name. One key signs, and every trusted key verifies (upstream: `pkg/apis/kops/keyset.go`).
///
/// The serialized form contains the ids of the keys, but no key material.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Keyset {
    url: String,
    name: String,
    primary_id: String,
    #[serde(rename = "keys")]
    items: Vec<KeysetItem>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeysetItem {
    /// The id of the key, unique in its keyset. It is a decimal number unless a user chose the id.
    pub id: String,
    /// The time at which the key was distrusted, in RFC 3339. `None` if the key is trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distrust_timestamp: Option<String>,
    #[serde(skip)]
    pub certificate: Option<Certificate>,
    /// The private key, if the store has it.
    #[serde(skip)]
    pub private_material: Option<PrivateMaterial>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    metadata: ObjectMeta,
    spec: FileSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FileSpec {
    #[serde(rename = "primaryID")]
    primary_id: String,
    keys: Vec<FileItem>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FileItem {
    id: String,
    distrust_timestamp: Option<String>,
    public_material: Base64,
    private_material: Base64,
}

impl Keyset {
    /// Reads a `keyset.yaml`. Fails if the keyset has no keys. Errors contain `url`, but never key material.
    pub fn parse(text: &[u8], url: &str) -> Result<Keyset, SpecError> {
        let (document, _) = parse_object(text, url, "Keyset")?;
        let mut respelling = Respelling::new(document, url);
        respelling.apply(&[moved("spec.primaryId", "spec.primaryID")])?;
        let file: File = respelling.read()?;
        if file.spec.keys.is_empty() {
            return respelling.refuse("spec.keys", "it is empty, but a key set needs at least one key");
        }
        let items = file
            .spec
            .keys
            .into_iter()
            .enumerate()
            .map(|(index, item)| {
                KeysetItem::from_file(item).map_err(|problem| {
                    SpecError::of_field(url, &format!("spec.keys[{index}].publicMaterial"), problem)
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Keyset { url: url.to_owned(), name: file.metadata.name, primary_id: file.spec.primary_id, items })
    }

    /// The keyset's name, such as `kubernetes-ca`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The id of the key that signs, as the file spells the id.
    pub fn primary_id(&self) -> &str {
        &self.primary_id
    }

    /// All keys, in the order of the file.
    pub fn items(&self) -> &[KeysetItem] {
        &self.items
    }

    pub fn item(&self, id: &str) -> Option<&KeysetItem> {
        self.items.iter().find(|item| item.id == id)
    }

    /// The signing key: the trusted key with the primary id, if this id is a number. If there is no such key, the trusted key with the
    /// highest number signs (upstream: `upup/pkg/fi/clientset_castore.go`, `FindPrimary`).
    pub fn primary(&self) -> Option<&KeysetItem> {
        let numbered = || self.trusted().filter(|item| is_number(&item.id));
        numbered()
            .find(|item| item.id == self.primary_id)
            .or_else(|| numbered().max_by(|a, b| compare_ids(&a.id, &b.id)))
    }

    /// The PEM certificates of all trusted keys, the oldest first.
    pub fn trusted_certificates_pem(&self) -> String {
        self.trusted_by_age()
            .into_iter()
            .filter_map(|item| item.certificate.as_ref())
            .map(Certificate::pem)
            .collect()
    }

    /// The public keys of all trusted keys, the oldest first, as kOps writes them for `service-account` (upstream: `upup/pkg/fi/ca.go`,
    /// `ToPublicKeys`). For every type of key, kOps writes `SubjectPublicKeyInfo` in a PEM block titled `RSA PUBLIC KEY`. Fails if a
    /// trusted key has no certificate. Otherwise the result would lack the public key, and verifiers would reject everything that the key
    /// signed.
    pub fn public_keys_pem(&self) -> Result<String, SpecError> {
        let mut pem = String::new();
        for item in self.trusted_by_age() {
            let Some(certificate) = &item.certificate else {
                let problem = format!(
                    "its key {} has no certificate, so its public key is unknown; \
                     distrust the key with `kops distrust keypair {} {}`",
                    item.id, self.name, item.id
                );
                return Err(SpecError::of_field(&self.url, "spec.keys", problem));
            };
            pem.push_str(&pem_block("RSA PUBLIC KEY", certificate.public_key_der()));
        }
        Ok(pem)
    }

    fn trusted(&self) -> impl Iterator<Item = &KeysetItem> {
        self.items.iter().filter(|item| item.distrust_timestamp.is_none())
    }

    fn trusted_by_age(&self) -> Vec<&KeysetItem> {
        let mut items: Vec<&KeysetItem> = self.trusted().collect();
        items.sort_by(|a, b| compare_ids(&a.id, &b.id));
        items
    }
}

impl KeysetItem {
    fn from_file(item: FileItem) -> Result<KeysetItem, Invalid> {
        let Base64(public) = item.public_material;
        let Base64(private) = item.private_material;
        Ok(KeysetItem {
            id: item.id,
            distrust_timestamp: item.distrust_timestamp,
            certificate: if public.is_empty() { None } else { Some(Certificate::parse(&public)?) },
            private_material: (!private.is_empty()).then(|| PrivateMaterial::new(private)),
        })
    }
}

fn is_number(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())
}

/// Compares two ids: older ids come first. Ids that are no numbers come before numbers, sorted as texts. Numbers of any length are sorted
/// by value (upstream: `upup/pkg/fi/ca.go`, `KeysetItemIdOlder`).
fn compare_ids(a: &str, b: &str) -> Ordering {
    match (is_number(a), is_number(b)) {
        (false, false) => a.cmp(b),
        (false, true) => Ordering::Less,
        (true, false) => Ordering::Greater,
        (true, true) => {
            let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
            a.len().cmp(&b.len()).then_with(|| a.cmp(b))
        }
    }
}

#[cfg(test)]
mod tests;
