//! Certificates with their keys.

use serde::{Deserialize, Serialize};

const END: &str = "-----END CERTIFICATE-----";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Issuer {
    /// This machine issues the certificate, with the authority's key from the state store.
    Local,
    /// The bootstrap server of a control plane issues the certificate.
    Bootstrap,
}

/// The permitted uses of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CertificateType {
    Client,
    Server,
    ClientServer,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// The user or host that the certificate identifies.
    pub common_name: String,
    /// Groups of the user that the certificate identifies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub organization: Vec<String>,
}

/// A certificate with its private key. Files refer to the certificate by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// The name by which files refer to the certificate. For [`Issuer::Bootstrap`], it is also the name in the bootstrap protocol.
    pub name: String,
    /// The keyset whose key signs the certificate, such as `kubernetes-ca`.
    pub signer: String,
    /// The id of the signing key in the keyset `signer`. Empty if the bootstrap server chooses the key.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub keypair_id: String,
    #[serde(rename = "type")]
    pub certificate_type: CertificateType,
    pub subject: Subject,
    /// Names and addresses that the certificate is valid for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sans: Vec<String>,
    pub issuer: Issuer,
    /// Whether the file with the certificate also contains the authority's own certificate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_root: bool,
}

/// The certificates in a PEM bundle, without white space, so that equal certificates are equal texts.
pub fn certificates(bundle: &str) -> Vec<String> {
    let all = bundle.split_inclusive(END).filter(|part| part.ends_with(END));
    all.map(|part| part.split_whitespace().collect()).collect()
}
