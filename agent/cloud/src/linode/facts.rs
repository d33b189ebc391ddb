//! Facts about a Linode instance from its metadata service.

use kops_agent_net::http;
use kops_agent_spec::facts::LinodeFacts;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderValue};

use crate::metadata::{Failure, MetadataError, MetadataService};

pub(super) const ENDPOINT: &str = "http://169.254.169.254";

const TOKEN_PATH: &str = "/v1/token";
const INSTANCE_PATH: &str = "/v1/instance";

pub(super) async fn observe(service: &MetadataService) -> Result<LinodeFacts, MetadataError> {
    let mut headers = HeaderMap::new();
    headers.insert("metadata-token", token(service).await?);
    let instance = service.get_needed(INSTANCE_PATH, &headers).await?;
    parse(&instance).ok_or_else(|| service.unusable(INSTANCE_PATH, "it has no label"))
}

/// Like `observe`, with the metadata service at `endpoint`.
#[cfg(any(test, feature = "testing"))]
pub async fn observe_at(endpoint: &str) -> Result<LinodeFacts, MetadataError> {
    observe(&MetadataService::new(endpoint, kops_agent_net::retry::Retries::default())?).await
}

async fn token(service: &MetadataService) -> Result<HeaderValue, MetadataError> {
    let attempt = || async {
        let mut headers = HeaderMap::new();
        headers.insert("metadata-token-expiry-seconds", HeaderValue::from_static("300"));
        let token = service.request(Method::PUT, TOKEN_PATH, headers).await?;
        token.ok_or_else(|| Failure::Unusable("it has no tokens (404)".into()))
    };
    let token =
        service.trying(TOKEN_PATH, "is the metadata service available for this instance?", attempt).await?;
    http::secret(&token).map_err(|_| service.unusable(TOKEN_PATH, "its token is not a valid HTTP header"))
}

/// Reads a response that has a line `name: value` for each property (upstream: `linodemetadata/authenticator.go`).
fn parse(instance: &str) -> Option<LinodeFacts> {
    let property =
        |name: &str| instance.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
    let label = property("label:").filter(|label| !label.is_empty())?.to_owned();
    Some(LinodeFacts { label, id: property("id:").unwrap_or_default().to_owned() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_tests::test_server::{TestServer, text};

    #[tokio::test]
    async fn an_instance_is_observed() {
        let server = TestServer::start(|request| async move {
            let header =
                |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            Ok(match (request.method().as_str(), request.uri().path()) {
                ("PUT", TOKEN_PATH) if header("metadata-token-expiry-seconds").is_some() => {
                    text(200, "the-token\n")
                }
                ("GET", INSTANCE_PATH) if header("metadata-token").as_deref() == Some("the-token") => {
                    text(200, "backups.enabled: false\nid: 4711\nlabel: nodes-1\n")
                }
                _ => text(401, ""),
            })
        })
        .await;
        let expected = LinodeFacts { label: "nodes-1".into(), id: "4711".into() };
        assert_eq!(observe_at(&server.url).await.unwrap(), expected);
    }

    #[test]
    fn an_instance_without_a_label_is_an_error() {
        assert_eq!(parse("id: 1\nlabels: x\n"), None);
        assert_eq!(parse("label:\n"), None);
        assert_eq!(parse("label: a\nbackups.id: 1\n").unwrap().id, "");
    }
}
