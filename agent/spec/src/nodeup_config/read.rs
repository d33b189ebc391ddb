//! Reads a `nodeupconfig.yaml`, and compares it with the hash in the user-data.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::NodeupConfig;
use crate::error::SpecError;
use crate::failure::{Failing, Kind};
use crate::field_warnings::{self, FieldWarning};
use crate::yaml::{from_document, ignored_fields, parse_document, parse_yaml};

/// The error for a file that does not have the expected hash.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{source_file} is not the file the user-data names: its SHA-256 is {actual}, but NodeupConfigHash is \
     {expected}; run `kops update cluster --yes` and replace this instance, or give the instance the \
     user-data that belongs to this file"
)]
pub struct HashMismatch {
    /// URL or path of the file.
    pub source_file: String,
    /// The hash in the boot config.
    pub expected: String,
    pub actual: String,
}

impl Failing for HashMismatch {
    fn kind(&self) -> Kind {
        Kind::HashMismatch
    }
}

impl NodeupConfig {
    /// Reads a `nodeupconfig.yaml`. Errors contain `url`.
    pub fn parse(text: &[u8], url: &str) -> Result<NodeupConfig, SpecError> {
        parse_yaml(text, url)
    }

    /// Like [`NodeupConfig::parse`], for a document that is already parsed.
    pub fn from_document(document: &Value, url: &str) -> Result<NodeupConfig, SpecError> {
        from_document(document, url)
    }

    /// The fields of a `nodeupconfig.yaml` that the agent does not know, for example fields of a newer kOps release.
    pub fn ignored_fields(text: &[u8], url: &str) -> Result<Vec<String>, SpecError> {
        Ok(ignored_fields::<NodeupConfig>(&parse_document(text, url)?))
    }

    /// Warnings about fields of a `nodeupconfig.yaml` that the agent does not read.
    pub fn warnings(text: &[u8], url: &str) -> Result<Vec<FieldWarning>, SpecError> {
        let document = parse_document(text, url)?;
        Ok(field_warnings::warnings(&document, ignored_fields::<NodeupConfig>(&document)))
    }

    /// The value of `BootConfig.NodeupConfigHash` for a file with these bytes: standard base64 of the SHA-256 (upstream:
    /// `pkg/model/bootstrapscript.go`, `kubeEnv`).
    pub fn hash(text: &[u8]) -> String {
        STANDARD.encode(Sha256::digest(text))
    }

    pub fn verify_hash(text: &[u8], expected: &str, url: &str) -> Result<(), HashMismatch> {
        let actual = NodeupConfig::hash(text);
        if actual == expected {
            return Ok(());
        }
        Err(HashMismatch { source_file: url.to_owned(), expected: expected.to_owned(), actual })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    const URL: &str = "s3://clusters/c.example.com/igconfig/node/nodes/nodeupconfig.yaml";

    #[test]
    fn an_empty_config_has_the_fields_that_kops_always_writes() {
        let written = serde_json::to_value(NodeupConfig::default()).unwrap();
        assert_eq!(
            written,
            json!({
                "CAs": {}, "Hooks": null, "KeypairIDs": {}, "KubeProxy": null, "KubeletConfig": {},
                "KubernetesVersion": "", "Networking": {}, "UpdatePolicy": "", "usesNoneDNS": false,
            })
        );
    }

    #[test]
    fn values_that_omitempty_keeps_are_written() {
        let text = r#"
CAs: {kubernetes-ca: pem}
Hooks: [null, [{name: a.service, enabled: false}]]
KeypairIDs: {}
KubeProxy: {enabled: true, conntrackMaxPerCore: 0}
KubeletConfig: {maxPods: 0, featureGates: {A: "true"}, imageMinimumGCAge: 1m30s}
KubernetesVersion: 1.34.0
Networking: {cilium: {}, egressProxy: {httpProxy: {}}}
Openstack: {}
UpdatePolicy: automatic
DefaultMachineType: ""
multizone: false
usesNoneDNS: false
"#;
        let config = NodeupConfig::parse(text.as_bytes(), URL).unwrap();
        let read: serde_json::Value = serde_yaml::from_str(text).unwrap();
        assert_eq!(serde_json::to_value(&config).unwrap(), read);
    }

    #[test]
    fn a_wrong_type_names_field_and_url() {
        let error = NodeupConfig::parse(b"KubeletConfig: {maxPods: lots}", URL).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "cannot read field KubeletConfig.maxPods of {URL}: it is a string, but should be a whole number"
            )
        );
    }

    #[test]
    fn an_error_about_a_duration_shows_a_valid_one() {
        let error =
            NodeupConfig::parse(b"KubeletConfig: {eventTTL: 1, imageMaximumGCAge: 5}", URL).unwrap_err();
        assert_eq!(error.field, "KubeletConfig.imageMaximumGCAge");
        assert_eq!(error.problem, "\"5\" is not a duration; use a duration such as 90s, 1m30s or 1.5h");
    }

    #[test]
    fn the_hash_is_base64_of_sha_256() {
        assert_eq!(NodeupConfig::hash(b""), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        assert_eq!(
            NodeupConfig::verify_hash(b"", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", URL),
            Ok(())
        );
    }

    #[test]
    fn a_changed_file_is_rejected_with_both_hashes() {
        let error = NodeupConfig::verify_hash(b"", "abc=", URL).unwrap_err().to_string();
        assert!(error.contains("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="), "{error}");
        assert!(error.contains("abc="), "{error}");
        assert!(error.contains(URL), "{error}");
    }
}
