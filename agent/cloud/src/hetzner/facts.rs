//! Facts about a Hetzner Cloud server from its metadata service.

use kops_agent_spec::facts::HetznerFacts;
use kops_agent_spec::yaml::{self, YamlError};
use reqwest::header::HeaderMap;
use serde::Deserialize;

use crate::metadata::{MetadataError, MetadataService};

pub(super) const ENDPOINT: &str = "http://169.254.169.254";

const NETWORKS: &str = "/hetzner/v1/metadata/private-networks";

#[derive(Deserialize)]
struct PrivateNetwork {
    ip: String,
    interface_num: u32,
}

pub(super) async fn observe(service: &MetadataService) -> Result<HetznerFacts, MetadataError> {
    let headers = HeaderMap::new();
    let instance_id = service.get_needed("/hetzner/v1/metadata/instance-id", &headers).await?;
    let networks = service.get(NETWORKS, &headers).await?.unwrap_or_default();
    let private_ipv4 =
        parse_private_ipv4(&networks).map_err(|error| service.unusable(NETWORKS, error.to_string()))?;
    Ok(HetznerFacts { instance_id, private_ipv4 })
}

/// The address in the network with interface number 1; empty if there is no such network (upstream:
/// `nodeup/pkg/model/context.go`, `GetMetadataLocalIP`).
fn parse_private_ipv4(networks: &str) -> Result<String, YamlError> {
    let networks: Option<Vec<PrivateNetwork>> = yaml::from_str(networks)?;
    let first = networks.unwrap_or_default().into_iter().find(|network| network.interface_num == 1);
    Ok(first.map(|network| network.ip).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_net::retry::Retries;
    use kops_agent_tests::test_server::{TestServer, text};

    const TWO_NETWORKS: &str = "
- ip: 10.1.0.2
  alias_ips: []
  interface_num: 2
  mac_address: 86:00:00:00:00:02
- ip: 10.0.0.2
  alias_ips: [10.0.0.3]
  interface_num: 1
  mac_address: 86:00:00:00:00:01
  network_id: 1234
";

    #[test]
    fn the_private_address_is_that_of_interface_number_1() {
        assert_eq!(parse_private_ipv4(TWO_NETWORKS).unwrap(), "10.0.0.2");
        assert_eq!(parse_private_ipv4("").unwrap(), "");
        assert_eq!(parse_private_ipv4("[]").unwrap(), "");
        parse_private_ipv4("no list").unwrap_err();
    }

    #[tokio::test]
    async fn a_server_is_observed() {
        let server = TestServer::start(|request| async move {
            Ok(match request.uri().path() {
                "/hetzner/v1/metadata/instance-id" => text(200, "4711"),
                NETWORKS => text(200, TWO_NETWORKS),
                _ => text(404, ""),
            })
        })
        .await;
        let service = MetadataService::new(server.url.clone(), Retries::default()).unwrap();
        let facts = observe(&service).await.unwrap();
        assert_eq!(facts, HetznerFacts { instance_id: "4711".into(), private_ipv4: "10.0.0.2".into() });
    }
}
