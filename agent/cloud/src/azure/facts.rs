//! Facts about an Azure virtual machine from its instance metadata service.

use kops_agent_spec::facts::AzureFacts;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::Deserialize;

use crate::metadata::{MetadataError, MetadataService};
use kops_agent_net::retry::Retries;

const ENDPOINT: &str = "http://169.254.169.254";

/// The path of the compute metadata, with the API version that upstream uses (`azuremetadata/imds.go`).
const COMPUTE: &str = "/metadata/instance/compute?api-version=2025-04-07&format=json";

/// The path of a signed document, with the API version of `COMPUTE`.
const DOCUMENT: &str = "/metadata/attested/document?api-version=2025-04-07";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Compute {
    resource_id: String,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Place {
    #[serde(rename = "subscriptionId")]
    pub(super) subscription: String,
    #[serde(rename = "resourceGroupName")]
    pub(super) resource_group: String,
}

/// The endpoint of the metadata service. `AZURE_POD_IDENTITY_AUTHORITY_HOST`, which Azure's own clients also read, replaces the default
/// endpoint.
pub(super) fn endpoint_of_environment() -> String {
    let moved = std::env::var("AZURE_POD_IDENTITY_AUTHORITY_HOST").ok().filter(|url| !url.is_empty());
    moved.unwrap_or_else(|| ENDPOINT.to_owned())
}

/// The header that the service requires. Without this header, a request may have reached the service by mistake.
pub(super) fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("metadata", HeaderValue::from_static("true"));
    headers
}

pub(super) async fn observe(service: &MetadataService) -> Result<AzureFacts, MetadataError> {
    let compute = service.get_needed(COMPUTE, &headers()).await?;
    parse(&compute).map_err(|error| service.unusable(COMPUTE, error.to_string()))
}

/// The subscription and the resource group of this machine.
pub(super) async fn place() -> Result<Place, MetadataError> {
    place_by(&MetadataService::new(endpoint_of_environment(), Retries::default())?).await
}

async fn place_by(service: &MetadataService) -> Result<Place, MetadataError> {
    let compute = service.get_needed(COMPUTE, &headers()).await?;
    let place: Place =
        serde_json::from_str(&compute).map_err(|error| service.unusable(COMPUTE, error.to_string()))?;
    // The names become parts of a URL path, so only the characters of valid names are accepted.
    let is_name = |name: &str| {
        let is_inner = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '(' | ')');
        !name.is_empty() && name.chars().all(is_inner) && name.chars().any(|c| c != '.')
    };
    match is_name(&place.subscription) && is_name(&place.resource_group) {
        true => Ok(place),
        false => Err(service.unusable(COMPUTE, "it names no subscription, or no resource group")),
    }
}

/// A signed document in base64 that identifies this machine. The signature includes the nonce.
pub(super) async fn attested_document(
    service: &MetadataService,
    nonce: &str,
) -> Result<String, MetadataError> {
    #[derive(Deserialize)]
    struct Answer {
        signature: String,
    }
    let path = format!("{DOCUMENT}&nonce={nonce}");
    let answer = service.get_needed(&path, &headers()).await?;
    match serde_json::from_str(&answer) {
        Ok(Answer { signature }) if !signature.is_empty() => Ok(signature),
        _ => Err(service.unusable(&path, "its answer has no signature")),
    }
}

pub(super) async fn vm_id(service: &MetadataService) -> Result<String, MetadataError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        vm_id: String,
    }
    let compute = service.get_needed(COMPUTE, &headers()).await?;
    match serde_json::from_str(&compute) {
        Ok(Answer { vm_id }) if !vm_id.is_empty() => Ok(vm_id),
        _ => Err(service.unusable(COMPUTE, "it has no vmId")),
    }
}

fn parse(compute: &str) -> Result<AzureFacts, serde_json::Error> {
    let compute: Compute = serde_json::from_str(compute)?;
    Ok(AzureFacts { resource_id: compute.resource_id })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_tests::test_server::{TestServer, text};

    #[tokio::test]
    async fn a_machine_is_observed() {
        let server = TestServer::start(|request| async move {
            let asked_rightly = request.headers().get("metadata").is_some_and(|value| value == "true");
            Ok(match request.uri().path() {
                "/metadata/instance/compute" if asked_rightly => {
                    text(200, r#"{"resourceId": "/subscriptions/1/x", "vmId": "2"}"#)
                }
                _ => text(400, ""),
            })
        })
        .await;
        let service = MetadataService::new(server.url.clone(), Retries::default()).unwrap();
        assert_eq!(observe(&service).await.unwrap().resource_id, "/subscriptions/1/x");
    }

    #[tokio::test]
    async fn the_resource_group_of_a_machine_is_read() {
        for (group, is_good) in
            [("kops-c_(1).x", true), ("", false), ("..", false), ("a/b", false), ("a?b", false)]
        {
            let answer = format!(
                r#"{{"subscriptionId": "0f3a-1", "resourceGroupName": "{group}", "resourceId": "/x"}}"#
            );
            let server = TestServer::start(move |_| {
                let answer = answer.clone();
                async move { Ok(text(200, &answer)) }
            })
            .await;
            let service = MetadataService::new(server.url.clone(), Retries::default()).unwrap();
            let place = place_by(&service).await;
            assert_eq!(place.is_ok(), is_good, "{group}: {place:?}");
        }
    }

    #[test]
    fn an_answer_without_the_id_is_rejected() {
        parse("{}").unwrap_err();
    }
}
