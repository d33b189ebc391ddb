//! A keyset, for tests inside and outside of this crate. The module that includes this file imports `Secrets`.

use kops_agent_pki::PemPair;

use super::Secrets;

/// The items of a keyset, by ID. All are trusted.
#[derive(Clone)]
pub(super) struct Keyset(pub(super) Vec<(&'static str, PemPair)>);

impl Secrets for Keyset {
    fn keyset_item(&self, _keyset: &str, id: &str) -> Option<PemPair> {
        self.0.iter().find(|(known, _)| *known == id).map(|(_, item)| item.clone())
    }

    fn trusted_certificates(&self, _keyset: &str) -> Option<String> {
        Some(self.0.iter().map(|(_, item)| item.certificate.as_str()).collect())
    }

    fn secret(&self, _name: &str) -> Option<Vec<u8>> {
        None
    }

    fn bootstrap_certificate(&self, _name: &str) -> Option<PemPair> {
        None
    }
}
