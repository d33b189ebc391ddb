//! A virtual machine of Azure, by its instance metadata service.

use kops_agent_spec::facts::AzureFacts;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::Deserialize;

use crate::metadata::{MetadataError, MetadataService};

/// Where the metadata service is.
pub(super) const ENDPOINT: &str = "http://169.254.169.254";

/// With the version of the API that upstream asks for (`azuremetadata/imds.go`).
const COMPUTE: &str = "/metadata/instance/compute?api-version=2025-04-07&format=json";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Compute {
    resource_id: String,
}

/// Asks which machine this is.
///
/// # Errors
/// If the service cannot be asked, or is none of Azure's.
pub(super) async fn observe(service: &MetadataService) -> Result<AzureFacts, MetadataError> {
    let mut headers = HeaderMap::new();
    headers.insert("metadata", HeaderValue::from_static("true"));
    let compute = service.get_needed(COMPUTE, &headers).await?;
    parse(&compute).map_err(|error| service.unusable(COMPUTE, error.to_string()))
}

fn parse(compute: &str) -> Result<AzureFacts, serde_json::Error> {
    let compute: Compute = serde_json::from_str(compute)?;
    Ok(AzureFacts { resource_id: compute.resource_id })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_net::retry::Retries;
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

    #[test]
    fn an_answer_without_the_id_is_none() {
        parse("{}").unwrap_err();
    }
}
