//! Facts about a Scaleway server from its metadata service.
//!
//! Source: Scaleway's SDK, `api/instance/v1/instance_metadata_sdk.go`, which upstream uses.

use kops_agent_spec::facts::ScalewayFacts;
use reqwest::header::HeaderMap;
use serde::Deserialize;

use crate::metadata::{MetadataError, MetadataService};

pub(super) const ENDPOINT: &str = "http://169.254.42.42";

const SERVER: &str = "/conf?format=json";

/// The fields that are read from the response, which describes the whole server.
#[derive(Deserialize)]
struct Server {
    id: String,
    #[serde(default)]
    location: Option<Location>,
    #[serde(default)]
    zone: Option<String>,
}

#[derive(Deserialize)]
struct Location {
    #[serde(default)]
    zone_id: String,
}

pub(super) async fn observe(service: &MetadataService) -> Result<ScalewayFacts, MetadataError> {
    let server = service.get_needed(SERVER, &HeaderMap::new()).await?;
    parse(&server).map_err(|error| service.unusable(SERVER, error.to_string()))
}

/// Reads the facts. The zone is the server's current location, as in upstream. A server that has not run yet has no location, so its field
/// `zone` is used.
fn parse(server: &str) -> Result<ScalewayFacts, serde_json::Error> {
    let Server { id, location, zone } = serde_json::from_str(server)?;
    let located = location.map(|location| location.zone_id).filter(|zone| !zone.is_empty());
    Ok(ScalewayFacts { server_id: id, zone: located.or(zone).unwrap_or_default() })
}

/// Like `observe`, with the metadata service at `endpoint`.
#[cfg(any(test, feature = "testing"))]
pub async fn observe_at(endpoint: &str) -> Result<ScalewayFacts, MetadataError> {
    observe(&MetadataService::new(endpoint, kops_agent_net::retry::Retries::default())?).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_tests::test_server::{TestServer, text};

    const ID: &str = "5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb";

    #[tokio::test]
    async fn a_server_is_observed() {
        let server = TestServer::start(|request| async move {
            Ok(match request.uri().path_and_query().unwrap().as_str() {
                SERVER => text(
                    200,
                    &format!(
                        r#"{{"id": "{ID}", "name": "nodes-0", "hostname": "nodes-0", "private_ip": null, "tags": [],
                            "ssh_public_keys": [{{"key": "ssh-ed25519 AAAA"}}], "zone": "nl-ams-1",
                            "location": {{"cluster_id": "72", "zone_id": "fr-par-1"}}}}"#
                    ),
                ),
                _ => text(404, ""),
            })
        })
        .await;
        let expected = ScalewayFacts { server_id: ID.into(), zone: "fr-par-1".into() };
        assert_eq!(observe_at(&server.url).await.unwrap(), expected);
    }

    #[tokio::test]
    async fn an_answer_without_a_server_is_an_error() {
        for answer in ["", "ID=4711\n", "{}", "[]", r#"{"id": "#] {
            let server = TestServer::start(move |_| async move { Ok(text(200, answer)) }).await;
            let error = observe_at(&server.url).await.unwrap_err().to_string();
            assert!(error.contains(SERVER), "{error}");
        }
    }

    #[test]
    fn a_server_without_a_location_has_its_zone_field() {
        for location in ["null", "{}", r#"{"zone_id": ""}"#] {
            let server = format!(r#"{{"id": "{ID}", "location": {location}, "zone": "fr-par-2"}}"#);
            assert_eq!(parse(&server).unwrap().zone, "fr-par-2", "{location}");
        }
        assert_eq!(parse(&format!(r#"{{"id": "{ID}"}}"#)).unwrap().zone, "");
    }
}
