//! Requests of machines to kops-controller, and its responses, as JSON.
//!
//! Source: upstream's `pkg/apis/nodeup/bootstrap.go` and `cmd/kops-controller/pkg/server/server.go`. This module writes every field that
//! upstream writes, even an empty one. As in upstream, a field of the input may be missing or null, and its name may have another case.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use serde_with::apply;

use kops_agent_spec::SpecError;
use kops_agent_spec::go_yaml::is_zero;

/// The only version of the messages.
pub const API_VERSION: &str = "bootstrap.kops.k8s.io/v1alpha1";

/// The maximum number of certificates, and of key pairs, in a request. kOps' nodes name at most six. The limit bounds memory, because
/// thousands of unverified requests may wait at a time.
const MOST_NAMED: usize = 32;

/// A machine's request for certificates or for its configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapRequest {
    /// Always [`API_VERSION`].
    #[serde(default)]
    pub api_version: String,
    /// The requested certificates, each with its public key in PEM. A request for the configuration has `null` here.
    #[serde(default)]
    pub certs: Option<BTreeMap<String, String>>,
    /// For each authority, the id of the key pair that the machine trusts.
    #[serde(rename = "keypairIDs", default)]
    pub keypair_ids: Option<BTreeMap<String, String>>,
    /// Whether the machine requests its configuration.
    #[serde(default)]
    pub include_node_config: bool,
    /// Whether the machine also requests the group's boot config. Only kops-agent's server knows this field.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub include_boot_config: bool,
    /// Whether the machine requests the program file of the state store. Only kops-agent's server knows this field.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub include_program: bool,
    /// How kops-controller can call the machine back, in clouds where the call-back is the proof of identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenge: Option<ChallengeRequest>,
}

/// How kops-controller can call a machine back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChallengeRequest {
    /// The address on which the machine listens. Only for information, because the address to call comes from the cloud.
    #[serde(default)]
    pub endpoint: String,
    /// The certificate of the machine's challenge server, in PEM.
    #[serde(default)]
    pub ca: Bytes,
    /// The id of the challenge: 32 hexadecimal digits.
    #[serde(rename = "challengeID", default)]
    pub challenge_id: String,
    /// A secret that only the machine and kops-controller know.
    #[serde(default)]
    pub challenge_secret: Bytes,
}

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BootstrapResponse {
    /// For each requested name, a certificate in PEM.
    #[serde(rename = "Certs")]
    pub certs: BTreeMap<String, String>,
    /// The machine's configuration, if the machine requested it.
    pub node_config: Option<ServedNodeConfig>,
    /// The text of the group's boot config, if the machine requested it. The boot config contains the hash of `node_config`.
    pub boot_config: Option<String>,
    /// The text of the program file ([`crate::rollout::ProgramFile`]), if the machine requested it.
    pub program: Option<String>,
}

/// The configuration of a machine that does not read the state store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServedNodeConfig {
    /// The text of the group's `nodeupconfig.yaml`.
    pub nodeup_config: String,
    /// Secrets for nodes, by name. Upstream only has `dockerconfig`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_secrets: BTreeMap<String, Bytes>,
    /// The kOps version that wrote the configuration. Only kops-agent's server sends this field, and upstream's nodeup ignores it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kops_version: String,
}

impl BootstrapRequest {
    pub fn for_node_config() -> BootstrapRequest {
        BootstrapRequest {
            api_version: API_VERSION.into(),
            certs: None,
            keypair_ids: None,
            include_node_config: true,
            include_boot_config: false,
            include_program: false,
            challenge: None,
        }
    }

    /// Requests the group's boot config too, if `is_wanted`.
    pub fn with_boot_config(self, is_wanted: bool) -> BootstrapRequest {
        BootstrapRequest { include_boot_config: is_wanted, ..self }
    }

    /// Requests nothing but the program file.
    pub fn for_program() -> BootstrapRequest {
        let request = BootstrapRequest::for_node_config();
        BootstrapRequest { include_node_config: false, include_program: true, ..request }
    }

    /// A request for certificates. `certs` has a public key for each name. `keypair_ids` has the id of the trusted key pair for each
    /// authority.
    pub fn for_certs(
        certs: BTreeMap<String, String>,
        keypair_ids: BTreeMap<String, String>,
    ) -> BootstrapRequest {
        BootstrapRequest {
            api_version: API_VERSION.into(),
            certs: Some(certs),
            keypair_ids: Some(keypair_ids),
            include_node_config: false,
            include_boot_config: false,
            include_program: false,
            challenge: None,
        }
    }

    /// Parses a request's body from an unauthenticated sender. Fails if the version is unknown, or if the request names too many
    /// certificates or key pairs.
    pub fn parse(body: &[u8]) -> Result<BootstrapRequest, SpecError> {
        let request: BootstrapRequest = parse(body, "the request")?;
        for (field, named) in [("certs", &request.certs), ("keypairIDs", &request.keypair_ids)] {
            let named = named.as_ref().map_or(0, BTreeMap::len);
            if named > MOST_NAMED {
                let problem = format!("it has {named} entries, but at most {MOST_NAMED} are accepted");
                return Err(SpecError::of_field("the request", field, problem));
            }
        }
        match request.api_version.as_str() {
            API_VERSION => Ok(request),
            other => Err(SpecError::of_field(
                "the request",
                "apiVersion",
                format!("it is {other:?}, but only {API_VERSION:?} is supported"),
            )),
        }
    }
}

impl BootstrapResponse {
    pub fn parse(body: &[u8]) -> Result<BootstrapResponse, SpecError> {
        parse(body, "kops-controller's answer")
    }
}

/// Bytes that JSON contains as standard base64, like Go's `[]byte`. The bytes may be secret, so `Debug` does not show them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes", self.0.len())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
        STANDARD.decode(text).map(Bytes).map_err(|_| serde::de::Error::custom("it is not base64"))
    }
}

fn parse<T: serde::de::DeserializeOwned>(body: &[u8], source: &str) -> Result<T, SpecError> {
    let fields: Map<String, Value> =
        serde_json::from_slice(body).map_err(|_| SpecError::of_file(source, "it is not a JSON object"))?;
    let document = Value::Object(fields.into_iter().map(respelled).collect());
    serde_path_to_error::deserialize(document)
        .map_err(|error| SpecError::of_field(source, &error.path().to_string(), "it has the wrong type"))
}

/// Corrects the case of a known field name, because Go ignores case.
fn respelled((key, value): (String, Value)) -> (String, Value) {
    const FIELDS: [&str; 11] = [
        "apiVersion",
        "certs",
        "keypairIDs",
        "includeNodeConfig",
        "includeBootConfig",
        "includeProgram",
        "challenge",
        "Certs",
        "nodeConfig",
        "bootConfig",
        "program",
    ];
    if FIELDS.contains(&key.as_str()) {
        return (key, value);
    }
    let spelled = FIELDS.iter().find(|field| field.eq_ignore_ascii_case(&key));
    (spelled.map_or(key, |field| (*field).to_owned()), value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_request_for_the_configuration_has_upstreams_bytes() {
        assert_eq!(
            serde_json::to_string(&BootstrapRequest::for_node_config()).unwrap(),
            r#"{"apiVersion":"bootstrap.kops.k8s.io/v1alpha1","certs":null,"keypairIDs":null,"includeNodeConfig":true}"#
        );
    }

    #[test]
    fn a_request_for_certificates_has_upstreams_bytes() {
        let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let request = BootstrapRequest::for_certs(one("kubelet", "PEM"), one("kubernetes-ca", "12"));
        assert_eq!(
            serde_json::to_string(&request).unwrap(),
            r#"{"apiVersion":"bootstrap.kops.k8s.io/v1alpha1","certs":{"kubelet":"PEM"},"keypairIDs":{"kubernetes-ca":"12"},"includeNodeConfig":false}"#
        );
    }

    #[test]
    fn field_names_ignore_case_and_unknown_fields_are_ignored() {
        let request = BootstrapRequest::parse(
            br#"{"APIVersion":"bootstrap.kops.k8s.io/v1alpha1","CERTS":null,"more":1,"challenge":{"challengeSecret":"AAE="}}"#,
        )
        .unwrap();
        assert_eq!(request.certs, None);
        assert_eq!(request.challenge.unwrap().challenge_secret, Bytes(vec![0, 1]));
    }

    #[test]
    fn malformed_requests_are_rejected_without_their_content() {
        for (body, expected) in [
            ("secret", "JSON object"),
            ("[]", "JSON object"),
            (r#"{"apiVersion":"v2"}"#, "v2"),
            (r#"{"apiVersion":"bootstrap.kops.k8s.io/v1alpha1","certs":"secret"}"#, "certs"),
            (
                r#"{"apiVersion":"bootstrap.kops.k8s.io/v1alpha1","challenge":{"ca":"secret!"}}"#,
                "challenge.ca",
            ),
        ] {
            let error = BootstrapRequest::parse(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_request_with_too_many_names_is_rejected() {
        let names = |count: usize| (0..count).map(|number| (number.to_string(), String::new())).collect();
        let read = |certs: usize, keypairs: usize| {
            let request = BootstrapRequest::for_certs(names(certs), names(keypairs));
            BootstrapRequest::parse(&serde_json::to_vec(&request).unwrap()).map(drop)
        };
        assert_eq!(read(MOST_NAMED, MOST_NAMED), Ok(()));
        for (certs, keypairs, field) in [(MOST_NAMED + 1, 0, "certs"), (0, MOST_NAMED + 1, "keypairIDs")] {
            let refused = read(certs, keypairs).unwrap_err().to_string();
            assert!(
                refused.contains(&format!("{field} of the request: it has 33 entries, but at most 32")),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_response_in_upstreams_form_is_read() {
        let response = BootstrapResponse::parse(
            br#"{"Certs":{"kubelet":"PEM"},"nodeConfig":{"nodeupConfig":"a: b\n","nodeSecrets":{"dockerconfig":"e30="}}}"#,
        )
        .unwrap();
        assert_eq!(response.certs["kubelet"], "PEM");
        let config = response.node_config.unwrap();
        assert_eq!(config.nodeup_config, "a: b\n");
        assert_eq!(config.node_secrets["dockerconfig"].0, b"{}");
        assert_eq!(config.kops_version, "");
    }
}
