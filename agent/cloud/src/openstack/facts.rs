//! A server of OpenStack, by the part of its metadata that speaks as EC2's does.

use std::net::IpAddr;

use kops_agent_spec::facts::OpenstackFacts;
use reqwest::header::HeaderMap;

use crate::metadata::{MetadataError, MetadataService};

/// Where the metadata service is.
pub(super) const ENDPOINT: &str = "http://169.254.169.254";

/// Upstream: `metadata://openstack` in util/pkg/vfs/context.go.
const LOCAL_IPV4: &str = "/latest/meta-data/local-ipv4";

/// Asks for the server's address, which may have none.
///
/// # Errors
/// If the service cannot be asked, or answers with something else than an address.
pub(super) async fn observe(service: &MetadataService) -> Result<OpenstackFacts, MetadataError> {
    let local_ipv4 = service.get(LOCAL_IPV4, &HeaderMap::new()).await?.unwrap_or_default();
    if !local_ipv4.is_empty() && local_ipv4.parse::<IpAddr>().is_err() {
        return Err(service.unusable(LOCAL_IPV4, format!("{local_ipv4:?} is no IP address")));
    }
    Ok(OpenstackFacts { local_ipv4 })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_net::retry::Retries;
    use kops_agent_tests::test_server::{TestServer, text};

    async fn observed(status: u16, answer: &'static str) -> Result<String, MetadataError> {
        let server = TestServer::start(move |request| async move {
            assert_eq!(request.uri().path(), LOCAL_IPV4);
            Ok(text(status, answer))
        })
        .await;
        let service = MetadataService::new(server.url.clone(), Retries::default()).unwrap();
        Ok(observe(&service).await?.local_ipv4)
    }

    #[tokio::test]
    async fn a_server_is_observed() {
        assert_eq!(observed(200, "10.0.0.5\n").await.unwrap(), "10.0.0.5");
        assert_eq!(observed(404, "not here").await.unwrap(), "");
        assert_eq!(observed(200, "").await.unwrap(), "");
        observed(200, "none").await.unwrap_err();
        observed(403, "").await.unwrap_err();
    }
}
