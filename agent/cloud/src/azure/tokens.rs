//! Access tokens of this machine's managed identity for Azure's services. All requests to one service share a token.
//!
//! Source: Microsoft Entra, "How to use managed identities for Azure resources on an Azure VM to acquire an access token".

use std::time::{Duration, Instant};

use reqwest::Method;
use reqwest::header::HeaderValue;
use serde::Deserialize;

use super::facts::{endpoint_of_environment, headers};
use crate::metadata::{Failure, MetadataError, MetadataService};
use crate::token_cache::{Issued, TokenCache};
use kops_agent_net::http;
use kops_agent_net::retry::Retries;

pub const STORAGE: &str = "https://storage.azure.com/";
pub const MANAGEMENT: &str = "https://management.azure.com/";

/// The client id of the identity to use if a machine has several identities. Azure's own clients read this variable, too (upstream:
/// `azidentity.NewDefaultAzureCredential`).
pub(super) const IDENTITY_VARIABLE: &str = "AZURE_CLIENT_ID";
/// The maximum time for retries. It is short, because outside Azure no retry helps, and in Azure the metadata service is available before
/// the node starts.
const LONGEST: Duration = Duration::from_secs(15);
const PATH: &str = "/metadata/identity/oauth2/token?api-version=2018-02-01";
const NO_IDENTITY: &str = "this machine has no managed identity, or no identity with the client id in \
                           AZURE_CLIENT_ID; kOps gives each of its scale sets an identity";

/// Gets and caches tokens for one service.
pub struct Tokens {
    metadata: MetadataService,
    path: String,
    cache: TokenCache<HeaderValue>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tokens").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

impl Tokens {
    /// Gets tokens for a service from the metadata service that the environment names, or from the default service.
    pub fn of_environment(service: &str, retries: Retries) -> Result<Tokens, MetadataError> {
        let identity = std::env::var(IDENTITY_VARIABLE).ok().filter(|id| !id.is_empty());
        Tokens::at(endpoint_of_environment(), service, identity.as_deref(), retries)
    }

    /// Creates a source of tokens, which come from the metadata service at `endpoint`. `identity` is the client id of the machine's
    /// identity; `None` means the only identity of the machine.
    pub fn at(
        endpoint: String,
        service: &str,
        identity: Option<&str>,
        retries: Retries,
    ) -> Result<Tokens, MetadataError> {
        let retries = Retries { deadline: retries.deadline.min(LONGEST), ..retries };
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("resource", service)
            .extend_pairs(identity.map(|id| ("client_id", id)))
            .finish();
        let path = format!("{PATH}&{query}");
        Ok(Tokens { metadata: MetadataService::new(endpoint, retries)?, path, cache: TokenCache::default() })
    }

    /// The value of `Authorization`, with a token that does not expire soon. Fails if the machine has no managed identity.
    pub async fn header(&self) -> Result<HeaderValue, MetadataError> {
        self.cache.get(self.ask()).await
    }

    /// Drops the cached token after a service rejected it.
    pub async fn forget(&self) {
        self.cache.forget(|_| true).await;
    }

    async fn ask(&self) -> Result<Issued<HeaderValue>, MetadataError> {
        /// The metadata service writes numbers as strings.
        #[derive(Deserialize)]
        struct Answer {
            access_token: String,
            expires_in: String,
        }
        let asked = Instant::now();
        let attempt = || async {
            match self.metadata.request(Method::GET, &self.path, headers()).await {
                // During an update, the service answers 410 for at most 70 seconds, so a retry may help.
                Err(Failure::Status(410)) => Err(Failure::Passing("it answers 410 Gone".into())),
                Ok(None) => Err(Failure::Passing("it answers 404 Not Found".into())),
                Ok(Some(answer)) => Ok(answer),
                Err(failure) => Err(failure),
            }
        };
        let answer: String = self.metadata.trying(&self.path, NO_IDENTITY, attempt).await?;
        // The response may contain the token, so the error does not show the response.
        let unusable = || self.metadata.unusable(&self.path, "its answer is not a token");
        let Answer { access_token, expires_in } = serde_json::from_str(&answer).map_err(|_| unusable())?;
        let expires_in = expires_in.parse().map_err(|_| unusable())?;
        let header = http::bearer(&access_token).map_err(|_| unusable())?;
        Ok(Issued::new(header, asked, Duration::from_secs(expires_in)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use kops_agent_tests::test_server::{TestServer, text};

    /// A metadata service, and the requests that it received.
    async fn server(status: u16, answer: &'static str) -> (TestServer, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&asked);
        let server = TestServer::start(move |request| {
            log.lock().push(request.uri().to_string());
            let is_known = request.headers().get("metadata").is_some_and(|value| value == "true");
            async move { Ok(if is_known { text(status, answer) } else { text(400, "") }) }
        })
        .await;
        (server, asked)
    }

    fn tokens(server: &TestServer, identity: Option<&str>) -> Tokens {
        let retries = Retries { deadline: Duration::from_millis(50), ..Retries::default() };
        Tokens::at(server.url.clone(), STORAGE, identity, retries).unwrap()
    }

    #[tokio::test]
    async fn a_token_is_requested_once_and_never_shown() {
        let (server, asked) = server(200, r#"{"access_token": "hidden", "expires_in": "3599"}"#).await;
        let tokens = tokens(&server, None);
        for _ in 0..3 {
            let header = tokens.header().await.unwrap();
            assert_eq!(header.to_str().unwrap(), "Bearer hidden");
            assert!(!format!("{header:?} {tokens:?}").contains("hidden"));
        }
        assert_eq!(
            *asked.lock(),
            [
                "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fstorage.azure.com%2F"
            ]
        );
        tokens.forget().await;
        tokens.header().await.unwrap();
        assert_eq!(asked.lock().len(), 2);
    }

    #[tokio::test]
    async fn a_token_that_expires_soon_is_not_reused() {
        let (server, asked) = server(200, r#"{"access_token": "hidden", "expires_in": "30"}"#).await;
        let tokens = tokens(&server, Some("0-1"));
        for _ in 0..2 {
            tokens.header().await.unwrap();
        }
        assert_eq!(asked.lock().len(), 2);
        assert!(asked.lock()[0].ends_with("&client_id=0-1"));
    }

    #[tokio::test]
    async fn an_invalid_token_response_is_an_error_that_does_not_show_it() {
        for answer in
            [r#"{"access_token": "hidden"}"#, r#"{"access_token": "hidden", "expires_in": "soon"}"#, "[]"]
        {
            let (server, _) = server(200, answer).await;
            let error = tokens(&server, None).header().await.unwrap_err().to_string();
            assert!(error.contains("is not a token") && !error.contains("hidden"), "{error}");
        }
        let (without, _) =
            server(400, r#"{"error": "invalid_request", "error_description": "Identity not found"}"#).await;
        let error = tokens(&without, None).header().await.unwrap_err().to_string();
        assert!(error.contains("answers 400; this machine has no managed identity"), "{error}");
        let (gone, asked) = server(410, "").await;
        let error = tokens(&gone, None).header().await.unwrap_err();
        assert!(matches!(error, MetadataError::Unreachable { .. }), "{error}");
        assert!(!asked.lock().is_empty());
    }
}
