//! A droplet of DigitalOcean, by its metadata service.

use kops_agent_plan::facts::DigitalOceanFacts;
use reqwest::header::HeaderMap;

use super::metadata::{MetadataError, MetadataService};

/// Where the metadata service is.
pub(super) const ENDPOINT: &str = "http://169.254.169.254";

const PRIVATE_ADDRESS: &str = "/metadata/v1/interfaces/private/0/ipv4/address";

/// Asks which droplet this is.
///
/// # Errors
/// If the service cannot be asked, or the droplet is in no private network.
pub(super) async fn observe(service: &MetadataService) -> Result<DigitalOceanFacts, MetadataError> {
    let private_ipv4 = service.get_needed(PRIVATE_ADDRESS, &HeaderMap::new()).await?;
    Ok(DigitalOceanFacts { private_ipv4 })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_net::retry::Retries;
    use kops_agent_tests::test_server::{TestServer, text};

    #[tokio::test]
    async fn a_droplet_is_observed() {
        let server = TestServer::start(|request| async move {
            Ok(if request.uri().path() == PRIVATE_ADDRESS { text(200, "10.10.0.5") } else { text(404, "") })
        })
        .await;
        let service = MetadataService::new(server.url.clone(), Retries::default()).unwrap();
        assert_eq!(observe(&service).await.unwrap().private_ipv4, "10.10.0.5");
    }
}
