//! Key sets: `pki/private/<id>/keyset.yaml`, the keys and certificates that a cluster lives by.

mod material;

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

pub use material::{Certificate, PrivateMaterial};

use super::error::SpecError;
use super::metadata::{ObjectMeta, parse_object};
use super::respell::{Respelling, moved};
pub(super) use material::Base64;
use material::pem_block;

/// All keys that go by one name, of which one signs and every trusted one verifies
/// (upstream: `pkg/apis/kops/keyset.go`).
///
/// Written out it names its keys, and has nothing of them.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Keyset {
    url: String,
    name: String,
    primary_id: String,
    #[serde(rename = "keys")]
    items: Vec<KeysetItem>,
}

/// One key of a key set.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeysetItem {
    /// Its id, unique in its set; a decimal number unless a user chose it.
    pub id: String,
    /// Since when it is no longer trusted, in RFC 3339; `None` while it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distrust_timestamp: Option<String>,
    #[serde(skip)]
    pub certificate: Option<Certificate>,
    /// Its private key, where the store has it.
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
    /// Reads a `keyset.yaml`; `url` is what errors name. Errors never show key material.
    ///
    /// # Errors
    /// If it is no YAML, no Keyset, has no keys, or a field has the wrong type or holds no
    /// certificate where one belongs.
    pub fn parse(text: &[u8], url: &str) -> Result<Keyset, SpecError> {
        let (document, _) = parse_object(text, url, "Keyset")?;
        let mut respelling = Respelling::of(document, url);
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
                KeysetItem::of(item).map_err(|problem| {
                    SpecError::of_field(url, &format!("spec.keys[{index}].publicMaterial"), problem)
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Keyset { url: url.to_owned(), name: file.metadata.name, primary_id: file.spec.primary_id, items })
    }

    /// The set's name, such as `kubernetes-ca`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The id of the key that signs, as the file has it.
    pub fn primary_id(&self) -> &str {
        &self.primary_id
    }

    /// Every key, in the order of the file.
    pub fn items(&self) -> &[KeysetItem] {
        &self.items
    }

    /// The key of that id.
    pub fn item(&self, id: &str) -> Option<&KeysetItem> {
        self.items.iter().find(|item| item.id == id)
    }

    /// The key that signs: the one named so, or, if that is distrusted or missing, the trusted one
    /// with the highest number (upstream: `upup/pkg/fi/clientset_castore.go`, `FindPrimary`).
    pub fn primary(&self) -> Option<&KeysetItem> {
        let numbered = || self.trusted().filter(|item| is_number(&item.id));
        numbered()
            .find(|item| item.id == self.primary_id)
            .or_else(|| numbered().max_by(|a, b| compare_ids(&a.id, &b.id)))
    }

    /// The PEM certificates of all trusted keys, oldest first: what verifiers are given.
    pub fn trusted_certificates_pem(&self) -> String {
        self.trusted_by_age()
            .into_iter()
            .filter_map(|item| item.certificate.as_ref())
            .map(Certificate::pem)
            .collect()
    }

    /// The public keys of all trusted keys, oldest first, as nodeup.Config holds those of
    /// `service-account`: `SubjectPublicKeyInfo` in PEM blocks titled `RSA PUBLIC KEY`, whatever
    /// kind they are (upstream: `upup/pkg/fi/ca.go`, `ToPublicKeys`).
    ///
    /// # Errors
    /// If a trusted key has no certificate to take it from: a verifier without it would reject
    /// what that key signed.
    pub fn public_keys_pem(&self) -> Result<String, SpecError> {
        let mut pem = String::new();
        for item in self.trusted_by_age() {
            let Some(certificate) = &item.certificate else {
                let problem = format!(
                    "its key {} has no certificate, from which its public key is taken; \
                     distrust that key with `kops distrust keypair {} {}`",
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
    fn of(item: FileItem) -> Result<KeysetItem, String> {
        let Base64(public) = item.public_material;
        let Base64(private) = item.private_material;
        Ok(KeysetItem {
            id: item.id,
            distrust_timestamp: item.distrust_timestamp,
            certificate: if public.is_empty() { None } else { Some(Certificate::parse(&public)?) },
            private_material: (!private.is_empty()).then(|| PrivateMaterial::of(private)),
        })
    }
}

fn is_number(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())
}

/// Older first: ids that are no number, by text, then numbers by size, however long
/// (upstream: `upup/pkg/fi/ca.go`, `KeysetItemIdOlder`).
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
