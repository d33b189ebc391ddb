//! The documents that Azure's metadata service signs for a machine, and the certificate chain of its signing key.
//!
//! Source: Azure, "Azure Instance Metadata Service", "Attested data"; RFC 5652, section 5.

use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_RSA_SHA256, RsaKeySize, SigningKey as _, date_time_ymd,
};
use serde_json::json;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{RESOURCE_GROUP, SUBSCRIPTION, resource_id};
use crate::authority::common_name;
use crate::digest::sha256_hex;
use crate::metadata::{Guard, Metadata};

/// The object identifiers in an attested document, in DER. The algorithms SHA-256 and RSA include NULL parameters.
const SIGNED_DATA: &[u8] = &[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2];
const DATA: &[u8] = &[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1];
const SHA256: &[u8] = &[0x06, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1, 0x05, 0];
const RSA: &[u8] = &[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 0x05, 0];
const CONTENT_TYPE: &[u8] = &[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 3];
const MESSAGE_DIGEST: &[u8] = &[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 4];
const CA_ISSUERS: &[u8] = &[0x06, 8, 0x2b, 6, 1, 5, 5, 7, 0x30, 2];
const VERSION: &[u8] = &[0x02, 1, 1];

/// A metadata service: its signing key, and the certificate chain of that key.
pub struct MetadataService {
    /// The root CA in DER, which a host must trust.
    pub root: Vec<u8>,
    pub root_pem: String,
    /// The intermediate CA in DER. The root CA has signed it, and the intermediate CA has signed the service's certificate.
    pub issuer: Vec<u8>,
    certificate: Vec<u8>,
    key: KeyPair,
}

impl std::fmt::Debug for MetadataService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MetadataService")
    }
}

#[derive(Clone, Debug)]
pub struct Document<'a> {
    /// The id of the machine that the document describes.
    pub vm_id: &'a str,
    pub subscription: &'a str,
    /// The request body from which the nonce is derived.
    pub body: &'a [u8],
    /// The time at which the document was made, in seconds since 1970.
    pub created: i64,
    /// Whether the document contains the intermediate CA.
    pub with_issuer: bool,
    /// Additional certificates in the document, in DER.
    pub beside: &'a [Vec<u8>],
    /// Whether the signature covers signed attributes instead of the content.
    pub with_attributes: bool,
}

impl<'a> Document<'a> {
    /// A document for this machine, request body and time. It contains the intermediate CA, which Azure's documents lack.
    pub fn new(vm_id: &'a str, body: &'a [u8], created: i64) -> Document<'a> {
        let (with_issuer, with_attributes, beside) = (true, false, &[]);
        Document { vm_id, subscription: SUBSCRIPTION, body, created, with_issuer, beside, with_attributes }
    }
}

impl MetadataService {
    /// Makes a service whose certificate has the name of a region in Azure's public cloud.
    pub fn generate() -> anyhow::Result<MetadataService> {
        MetadataService::named("westeurope.metadata.azure.com", "", (1975, 4096))
    }

    /// Makes a service whose certificate has this name and is valid between two years. The certificate names `place` as the URL of its
    /// issuer's certificate, unless `place` is empty.
    pub fn named(name: &str, place: &str, years: (i32, i32)) -> anyhow::Result<MetadataService> {
        let root_key = KeyPair::generate()?;
        let root_params = authority("Microsoft of a test");
        let root = root_params.self_signed(&root_key)?;
        let (root, root_pem) = (root.der().to_vec(), root.pem());
        let root_issuer = Issuer::new(root_params, root_key);
        let issuer_key = KeyPair::generate()?;
        let issuer_params = authority("TLS issuing CA of a test");
        let issuer = issuer_params.signed_by(&issuer_key, &root_issuer)?.der().to_vec();
        let issuing = Issuer::new(issuer_params, issuer_key);
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.distinguished_name = common_name(name);
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = (date_time_ymd(years.0, 1, 1), date_time_ymd(years.1, 1, 1));
        if !place.is_empty() {
            let access = tlv(0x30, &[CA_ISSUERS, &tlv(0x86, place.as_bytes())].concat());
            let content = tlv(0x30, &access);
            let access = CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], content);
            params.custom_extensions.push(access);
        }
        let certificate = params.signed_by(&key, &issuing)?.der().to_vec();
        Ok(MetadataService { root, root_pem, issuer, certificate, key })
    }

    /// The bootstrap token of a scale set's machine, with this document.
    pub fn token(&self, scale_set: &str, number: u32, document: &Document<'_>) -> anyhow::Result<String> {
        Ok(format!("x-azure-id {} {}", resource_id(scale_set, number), self.sign(document)?))
    }

    /// Signs a document and returns it in base64.
    pub fn sign(&self, document: &Document<'_>) -> anyhow::Result<String> {
        self.sign_for(&sha256_hex(document.body)[..32], document)
    }

    /// Like `sign`, but with this nonce instead of a nonce from the document's body.
    pub fn sign_for(&self, nonce: &str, document: &Document<'_>) -> anyhow::Result<String> {
        let stamp = json!({"createdOn": written(document.created)?, "expiresOn": written(document.created + 6 * 3600)?});
        let content = json!({"licenseType": "", "nonce": nonce, "plan": {"name": "", "product": "", "publisher": ""},
            "sku": "12", "subscriptionId": document.subscription, "timeStamp": stamp, "vmId": document.vm_id});
        let content = content.to_string().into_bytes();
        let attributes = document.with_attributes.then(|| {
            let digest = tlv(0x04, &Sha256::digest(&content));
            [
                tlv(0x30, &[CONTENT_TYPE, &tlv(0x31, DATA)].concat()),
                tlv(0x30, &[MESSAGE_DIGEST, &tlv(0x31, &digest)].concat()),
            ]
            .concat()
        });
        let signature = match &attributes {
            Some(attributes) => self.key.sign(&tlv(0x31, attributes))?,
            None => self.key.sign(&content)?,
        };
        let (_, certificate) = X509Certificate::from_der(&self.certificate)?;
        let names = [certificate.issuer().as_raw(), &tlv(0x02, certificate.raw_serial())].concat();
        let signer = tlv(
            0x30,
            &[
                VERSION,
                &tlv(0x30, &names),
                &tlv(0x30, SHA256),
                &attributes.map(|attributes| tlv(0xa0, &attributes)).unwrap_or_default(),
                &tlv(0x30, RSA),
                &tlv(0x04, &signature),
            ]
            .concat(),
        );
        let issuer: &[u8] = if document.with_issuer { &self.issuer } else { &[] };
        let signed_data = [
            VERSION,
            &tlv(0x31, &tlv(0x30, SHA256)),
            &tlv(0x30, &[DATA, &tlv(0xa0, &tlv(0x04, &content))].concat()),
            &tlv(0xa0, &[self.certificate.as_slice(), issuer, &document.beside.concat()].concat()),
            &tlv(0x31, &signer),
        ]
        .concat();
        let whole = tlv(0x30, &[SIGNED_DATA, &tlv(0xa0, &tlv(0x30, &signed_data))].concat());
        Ok(STANDARD.encode(whole))
    }
}

/// The metadata of a machine of a scale set. `service` signs the attested documents.
pub fn metadata(service: Arc<MetadataService>, scale_set: &str, number: u32, vm_id: &str) -> Metadata {
    let compute = json!({"resourceId": resource_id(scale_set, number), "vmId": vm_id, "subscriptionId": SUBSCRIPTION,
                         "resourceGroupName": RESOURCE_GROUP});
    let vm_id = vm_id.to_owned();
    Metadata::new(Guard::Header("metadata", "true"), [("/metadata/instance/compute", compute.to_string())])
        .making("/metadata/attested/document", move |query| {
            let nonce =
                form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "nonce")?.1.into_owned();
            let now = SystemTime::UNIX_EPOCH.elapsed().ok()?.as_secs();
            let document = Document::new(&vm_id, b"", i64::try_from(now).ok()?);
            let signature = service.sign_for(&nonce, &document).ok()?;
            Some(json!({"encoding": "pkcs7", "signature": signature}).to_string())
        })
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (params.not_before, params.not_after) = (date_time_ymd(1975, 1, 1), date_time_ymd(4096, 1, 1));
    params
}

/// A time in Azure's format. `seconds` are since 1970.
fn written(seconds: i64) -> anyhow::Result<String> {
    let format = format_description!("[month]/[day]/[year repr:last_two] [hour]:[minute]:[second] -0000");
    Ok(OffsetDateTime::from_unix_timestamp(seconds)?.format(format)?)
}

/// An ASN.1 value in DER: tag, length and content.
fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut value = vec![tag];
    match content.len() {
        short @ 0..=127 => value.push(u8::try_from(short).unwrap_or_default()),
        _ => {
            value.push(0x80 | u8::try_from(significant.len()).unwrap_or_default());
            value.extend_from_slice(significant);
        }
    }
    value.extend_from_slice(content);
    value
}
