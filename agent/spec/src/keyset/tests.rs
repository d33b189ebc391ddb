//! Tests of trusted keys, of their order, and of hidden private keys.

#![allow(clippy::unwrap_used)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

const URL: &str = "s3://clusters/c.example.com/pki/private/service-account/keyset.yaml";
const RSA: &str = include_str!("testdata/rsa.pem");
const RSA_PUBLIC: &str = include_str!("testdata/rsa.pub.pem");
const EC: &str = include_str!("testdata/ec.pem");
const PRIVATE: &str = "-----BEGIN RSA PRIVATE KEY-----";

fn item(id: &str, certificate: &str, more: &str) -> String {
    let public = STANDARD.encode(certificate);
    let private = STANDARD.encode(PRIVATE);
    format!("  - {{id: \"{id}\", publicMaterial: \"{public}\", privateMaterial: \"{private}\"{more}}}\n")
}

fn text(primary: &str, items: &[String]) -> String {
    format!(
        "apiVersion: kops.k8s.io/v1alpha2\nkind: Keyset\nmetadata: {{name: service-account}}\n\
         spec:\n  type: Keypair\n  primaryId: \"{primary}\"\n  keys:\n{}",
        items.concat()
    )
}

fn keyset(primary: &str, items: &[String]) -> Keyset {
    Keyset::parse(text(primary, items).as_bytes(), URL).unwrap()
}

const DISTRUSTED: &str = ", distrustTimestamp: \"2024-01-01T00:00:00Z\"";

#[test]
fn a_key_set_is_read() {
    let keyset = keyset("7", &[item("7", RSA, ""), item("8", EC, DISTRUSTED)]);
    assert_eq!((keyset.name(), keyset.primary_id()), ("service-account", "7"));
    assert_eq!(keyset.items().len(), 2);
    assert_eq!(keyset.item("7").unwrap().private_material.as_ref().unwrap().expose(), PRIVATE.as_bytes());
    assert_eq!(keyset.item("8").unwrap().distrust_timestamp.as_deref(), Some("2024-01-01T00:00:00Z"));
    assert!(keyset.item("9").is_none());
}

#[test]
fn trusted_certificates_are_plain_pem_and_oldest_first() {
    let ornate = format!("a comment\n{RSA}");
    let keyset = keyset(
        "7",
        &[
            item("10000000000000000000000", EC, ""),
            item("9", &ornate, ""),
            item("next", EC, ""),
            item("8", RSA, DISTRUSTED),
        ],
    );
    assert_eq!(keyset.trusted_certificates_pem(), format!("{EC}{RSA}{EC}"));
}

#[test]
fn public_keys_are_pkix_with_kops_title() {
    let keyset = keyset("7", &[item("7", RSA, "")]);
    assert_eq!(keyset.public_keys_pem().unwrap(), RSA_PUBLIC);
}

#[test]
fn a_trusted_key_without_a_certificate_is_an_error() {
    let error = keyset("7", &[item("7", "", "")]).public_keys_pem().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "cannot read field spec.keys of {URL}: its key 7 has no certificate, so its public key is unknown; \
             distrust the key with `kops distrust keypair service-account 7`"
        )
    );
}

#[test]
fn the_primary_key_is_the_named_or_else_the_newest_trusted_key() {
    let primary =
        |primary: &str, items: &[String]| keyset(primary, items).primary().map(|item| item.id.clone());
    let plain = [item("7", RSA, ""), item("12", RSA, ""), item("name", RSA, "")];
    assert_eq!(primary("7", &plain).as_deref(), Some("7"));
    assert_eq!(primary("99", &plain).as_deref(), Some("12"));
    assert_eq!(primary("name", &plain).as_deref(), Some("12"));
    assert_eq!(primary("7", &[item("7", RSA, DISTRUSTED), item("5", RSA, "")]).as_deref(), Some("5"));
    assert_eq!(primary("7", &[item("7", RSA, DISTRUSTED)]), None);
}

#[test]
fn private_material_is_never_shown() {
    let debug = format!("{:?}", keyset("7", &[item("7", RSA, "")]));
    assert!(debug.contains("PrivateMaterial(redacted)"), "{debug}");
    assert!(!debug.contains("PRIVATE KEY") && !debug.contains(&STANDARD.encode(PRIVATE)), "{debug}");
    let broken = "spec: {keys: [{id: a, privateMaterial: 'hush!'}]}";
    let error = Keyset::parse(broken.as_bytes(), URL).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot read field spec.keys[0].privateMaterial of {URL}: it is not base64")
    );
}

#[test]
fn errors_of_a_key_set_name_the_field() {
    for (text, field) in [
        ("spec: {primaryId: [7]}", "spec.primaryId"),
        ("spec: {keys: []}", "spec.keys"),
        ("spec: {keys: [{id: a, publicMaterial: Zm9v}]}", "spec.keys[0].publicMaterial"),
        ("kind: Cluster", "kind"),
    ] {
        assert_eq!(Keyset::parse(text.as_bytes(), URL).unwrap_err().field, field, "{text}");
    }
}
