//! The common fields of all API objects: a version, a kind, a name and labels.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::error::SpecError;
use super::yaml::parse_document;

/// The fields of `metav1.ObjectMeta` that kOps uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectMeta {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// The time at which the object was created, in RFC 3339.
    pub creation_timestamp: Option<String>,
}

/// A version of kOps' API that the agent can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiVersion {
    V1Alpha2,
    V1Alpha3,
}

/// Reads a document and its API version. Fails if the document has a kind other than `wanted_kind`. A document may lack a kind.
///
/// A file without a version is v1alpha2. The group `kops` is the old name of `kops.k8s.io` (upstream: `pkg/kopscodecs/codecs.go`).
pub(crate) fn parse_object(
    text: &[u8],
    url: &str,
    wanted_kind: &str,
) -> Result<(Value, ApiVersion), SpecError> {
    let document = parse_document(text, url)?;
    let version = version_of(&document, url, wanted_kind)?;
    Ok((document, version))
}

/// The API version of a document. Fails if the document's kind is not `wanted_kind`. A missing kind is accepted.
pub(crate) fn version_of(document: &Value, url: &str, wanted_kind: &str) -> Result<ApiVersion, SpecError> {
    let header: Header = super::yaml::from_document(document, url)?;
    if !header.kind.is_empty() && header.kind != wanted_kind {
        let problem = format!("it is of kind {}, but should be of kind {wanted_kind}", header.kind);
        return Err(SpecError::of_field(url, "kind", problem));
    }
    match header.api_version.as_str() {
        "" | "kops.k8s.io/v1alpha2" | "kops/v1alpha2" => Ok(ApiVersion::V1Alpha2),
        "kops.k8s.io/v1alpha3" => Ok(ApiVersion::V1Alpha3),
        other => {
            let problem = format!(
                "{other} is not supported; supported are kops.k8s.io/v1alpha2 and kops.k8s.io/v1alpha3. Use \
                 the kops-agent of the kOps release that wrote this file"
            );
            Err(SpecError::of_field(url, "apiVersion", problem))
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Header {
    api_version: String,
    kind: String,
}
