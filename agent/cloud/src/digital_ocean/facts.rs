//! Facts about a DigitalOcean droplet from its metadata service.

use kops_agent_spec::facts::DigitalOceanFacts;
use reqwest::header::HeaderMap;

use crate::metadata::{MetadataError, MetadataService};

pub(super) const ENDPOINT: &str = "http://169.254.169.254";

const DROPLET_ID: &str = "/metadata/v1/id";
const PRIVATE_ADDRESS: &str = "/metadata/v1/interfaces/private/0/ipv4/address";

/// Fails if the droplet is not in a private network.
pub(super) async fn observe(service: &MetadataService) -> Result<DigitalOceanFacts, MetadataError> {
    let headers = HeaderMap::new();
    let private_ipv4 = service.get_needed(PRIVATE_ADDRESS, &headers).await?;
    let droplet_id = service.get(DROPLET_ID, &headers).await?.unwrap_or_default();
    Ok(DigitalOceanFacts { droplet_id, private_ipv4 })
}

/// Like `observe`, with the metadata service at `endpoint`.
#[cfg(any(test, feature = "testing"))]
pub async fn observe_at(endpoint: &str) -> Result<DigitalOceanFacts, MetadataError> {
    observe(&MetadataService::new(endpoint, kops_agent_net::retry::Retries::default())?).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_tests::test_server::{TestServer, text};

    #[tokio::test]
    async fn a_droplet_is_observed() {
        let server = TestServer::start(|request| async move {
            Ok(match request.uri().path() {
                PRIVATE_ADDRESS => text(200, "10.10.0.5"),
                DROPLET_ID => text(200, "4711\n"),
                _ => text(404, ""),
            })
        })
        .await;
        let expected = DigitalOceanFacts { droplet_id: "4711".into(), private_ipv4: "10.10.0.5".into() };
        assert_eq!(observe_at(&server.url).await.unwrap(), expected);
    }
}
