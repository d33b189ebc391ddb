//! Access tokens for Google's services, of this instance's service account or of a key file. All requests share a token.

use std::time::{Duration, Instant};

use reqwest::header::{HeaderMap, HeaderValue};
use thiserror::Error;

use super::facts::endpoint_of_environment;
use super::service_account::{Granted, KeyError, KeyTokens, ServiceAccountKey};
use crate::metadata::{MetadataError, MetadataService};
use crate::token_cache::{Issued, TokenCache};
use kops_agent_net::http;
use kops_agent_net::retry::Retries;

/// The maximum time for retries. Outside GCE no retry helps, and in GCE the metadata server is available before the node
/// starts.
const LONGEST: Duration = Duration::from_secs(15);
const PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";

#[derive(Debug, Error)]
pub enum TokenError {
    /// The metadata server returns no token for the instance's service account.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// Google returns no token for the account in the key file.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Gets and caches access tokens for Google's APIs. The tokens come from the metadata server, or from Google with the key of a service
/// account.
pub struct Tokens {
    source: Source,
    cache: TokenCache<HeaderValue>,
}

enum Source {
    Instance(MetadataService),
    Key(Box<KeyTokens>),
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let source: &dyn std::fmt::Debug = match &self.source {
            Source::Instance(metadata) => metadata,
            Source::Key(key) => key,
        };
        formatter.debug_struct("Tokens").field("source", source).finish_non_exhaustive()
    }
}

impl Tokens {
    /// Gets tokens from the metadata server that the environment names, or from the default server.
    pub fn of_environment(retries: Retries) -> Result<Tokens, MetadataError> {
        Tokens::at(endpoint_of_environment(), retries)
    }

    /// Gets tokens from the metadata server at an endpoint.
    pub fn at(endpoint: String, retries: Retries) -> Result<Tokens, MetadataError> {
        let retries = Retries { deadline: retries.deadline.min(LONGEST), ..retries };
        Ok(Tokens::new(Source::Instance(MetadataService::new(endpoint, retries)?)))
    }

    /// Gets tokens for a scope with the key file that `GOOGLE_APPLICATION_CREDENTIALS` names. If the variable is not set, gets the
    /// instance's tokens, and `scope` has no effect.
    pub fn of_application(scope: &'static str, retries: Retries) -> Result<Tokens, TokenError> {
        match ServiceAccountKey::of_environment()? {
            Some(key) => Ok(Tokens::of_key(KeyTokens::new(key, scope, retries)?)),
            None => Ok(Tokens::of_environment(retries)?),
        }
    }

    pub fn of_key(key: KeyTokens) -> Tokens {
        Tokens::new(Source::Key(Box::new(key)))
    }

    fn new(source: Source) -> Tokens {
        Tokens { source, cache: TokenCache::default() }
    }

    /// The account that the tokens belong to, for messages.
    pub fn whose(&self) -> String {
        match &self.source {
            Source::Instance(_) => "the instance's service account".to_owned(),
            Source::Key(tokens) => format!("the service account {}", tokens.key().email()),
        }
    }

    /// The value of `Authorization`, with a token that does not expire soon. Fails if the instance has no service account.
    pub async fn header(&self) -> Result<HeaderValue, TokenError> {
        self.cache.get(self.ask()).await
    }

    /// Drops the cached token after a service rejected it.
    pub async fn forget(&self) {
        self.cache.forget(|_| true).await;
    }

    /// Requests a token (cloud.google.com/compute/docs/access/authenticate-workloads).
    async fn ask(&self) -> Result<Issued<HeaderValue>, TokenError> {
        let asked = Instant::now();
        match &self.source {
            Source::Instance(metadata) => {
                let mut headers = HeaderMap::new();
                headers.insert("metadata-flavor", HeaderValue::from_static("Google"));
                let answer = metadata.get_needed(PATH, &headers).await?;
                let token = serde_json::from_str(&answer).ok().and_then(|granted| issued(granted, asked));
                // The response may contain the token, so the error does not show the response.
                Ok(token.ok_or_else(|| metadata.unusable(PATH, "its answer is not a token"))?)
            }
            Source::Key(tokens) => {
                let granted = tokens.ask().await?;
                Ok(issued(granted, asked).ok_or_else(|| tokens.refused("its answer is not a token"))?)
            }
        }
    }
}

/// The token of a response. `asked` is the time of the request. `None` if a header cannot contain the token.
fn issued(Granted { access_token, expires_in }: Granted, asked: Instant) -> Option<Issued<HeaderValue>> {
    Some(Issued::new(http::bearer(&access_token).ok()?, asked, Duration::from_secs(expires_in)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use kops_agent_tests::test_server::{TestServer, text};

    /// A metadata server, and the number of requests that it received.
    async fn server(answer: &'static str) -> (TestServer, Arc<AtomicU32>) {
        let asked = Arc::<AtomicU32>::default();
        let count = Arc::clone(&asked);
        let server = TestServer::start(move |request| {
            count.fetch_add(1, Ordering::Relaxed);
            let flavor = request.headers().get("metadata-flavor").is_some_and(|flavor| flavor == "Google");
            let is_known = flavor && request.uri().path() == PATH;
            async move { Ok(if is_known { text(200, answer) } else { text(404, "") }) }
        })
        .await;
        (server, asked)
    }

    fn tokens(server: &TestServer) -> Tokens {
        Tokens::at(server.url.clone(), Retries::default()).unwrap()
    }

    #[tokio::test]
    async fn a_token_is_requested_once_and_never_shown() {
        let (server, asked) = server(r#"{"access_token": "hidden", "expires_in": 3599}"#).await;
        let tokens = tokens(&server);
        for _ in 0..3 {
            let header = tokens.header().await.unwrap();
            assert_eq!(header.to_str().unwrap(), "Bearer hidden");
            assert!(!format!("{header:?} {tokens:?}").contains("hidden"));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        tokens.forget().await;
        tokens.header().await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_token_that_expires_soon_is_not_reused() {
        let (server, asked) = server(r#"{"access_token": "hidden", "expires_in": 30}"#).await;
        let tokens = tokens(&server);
        for _ in 0..2 {
            tokens.header().await.unwrap();
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn an_invalid_token_response_is_not_shown() {
        let (server, _) = server(r#"{"access_token": "hidden"}"#).await;
        let error = tokens(&server).header().await.unwrap_err().to_string();
        assert!(error.contains("is not a token") && !error.contains("hidden"), "{error}");
    }
}
