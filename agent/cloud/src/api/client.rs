//! A client for one API with access tokens, a rate limit and retries.

use std::time::Duration;

use kops_agent_net::http::{HttpError, client_without_redirects, innermost_cause};
use kops_agent_net::retry::Retries;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Client, RequestBuilder};
use serde::de::DeserializeOwned;

use super::{ApiError, Question, ask, outcome};
use crate::calls::CloudCalls;
use crate::rate_limiter::RateLimiter;

/// The pause after a throttled request if the API does not specify a pause.
const PAUSE: Duration = Duration::from_secs(1);

/// Provides access tokens for an API, and renews them before they expire.
pub(crate) trait AccessTokens: Send + Sync {
    /// The value of `Authorization`, with a token that does not expire soon.
    fn authorization(&self) -> impl Future<Output = Result<HeaderValue, ApiError>> + Send;

    /// Drops the cached token after the API rejected it.
    fn forget_refused(&self) -> impl Future<Output = ()> + Send;
}

#[derive(Debug)]
pub(crate) struct ApiClient<T> {
    client: Client,
    tokens: T,
    /// The API's name in metrics.
    service: &'static str,
    calls: CloudCalls,
    limiter: RateLimiter,
    pub(crate) retries: Retries,
}

impl<T: AccessTokens> ApiClient<T> {
    /// Creates a client that authenticates with `tokens` and counts its requests in `calls` under `service`. The client follows no
    /// redirect, because the tokens are for this API only.
    pub(crate) fn new(
        service: &'static str,
        tokens: T,
        calls: CloudCalls,
        limiter: RateLimiter,
        retries: Retries,
    ) -> Result<ApiClient<T>, HttpError> {
        Ok(ApiClient { client: client_without_redirects()?, tokens, service, calls, limiter, retries })
    }

    /// Sends a request with retries, and decodes its JSON response.
    pub(crate) async fn ask<A: DeserializeOwned>(
        &self,
        question: Question<'_>,
        request: impl Fn(&Client) -> RequestBuilder + Sync,
    ) -> Result<A, ApiError> {
        let attempt = || async {
            let asked = self.attempt(question, &request).await;
            self.calls.count(self.service, question.action, outcome(&asked));
            self.limiter.pause_if_throttled(&asked, PAUSE);
            asked
        };
        let what = format!("{}, {}", question.api.name, question.action);
        self.retries.run(&what, attempt, ApiError::retried_for).await.map_err(|gave_up| gave_up.error)
    }

    async fn attempt<A: DeserializeOwned>(
        &self,
        question: Question<'_>,
        request: &(impl Fn(&Client) -> RequestBuilder + Sync),
    ) -> Result<A, ApiError> {
        self.limiter.acquire().await;
        let mut asked = self.send(question, request(&self.client)).await;
        if asked.as_ref().is_err_and(|error| error.status() == Some(401)) {
            // The API may have revoked the token before its expiry, so one attempt follows with a new token.
            self.tokens.forget_refused().await;
            asked = self.send(question, request(&self.client)).await;
        }
        serde_json::from_slice(&asked?).map_err(|error| question.garbage(200, error))
    }

    async fn send(&self, question: Question<'_>, request: RequestBuilder) -> Result<Vec<u8>, ApiError> {
        let token = self.tokens.authorization().await?;
        let request = request.header(AUTHORIZATION, token).timeout(self.retries.attempt).build();
        let request = request.map_err(|error| question.unreachable(innermost_cause(error)))?;
        ask(&self.client, request, question).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    use kops_agent_net::retry::Pauses;
    use kops_agent_tests::test_server::{TestServer, text};
    use serde_json::Value;

    use super::*;
    use crate::gce::compute::API;

    struct Fixed;

    impl AccessTokens for Fixed {
        async fn authorization(&self) -> Result<HeaderValue, ApiError> {
            Ok(HeaderValue::from_static("Bearer hidden"))
        }

        async fn forget_refused(&self) {}
    }

    #[tokio::test]
    async fn a_throttled_request_is_retried_after_retry_after() {
        kops_agent_net::tls::install_provider();
        let asked = Arc::new(AtomicU32::new(0));
        let asked_there = asked.clone();
        let server = TestServer::start(move |request| {
            let is_first = asked_there.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                assert_eq!(request.headers()["authorization"], "Bearer hidden");
                let mut answer = text(if is_first { 429 } else { 200 }, "{}");
                answer.headers_mut().insert("retry-after", HeaderValue::from_static("1"));
                Ok(answer)
            }
        })
        .await;
        let retries = Retries {
            pauses: Pauses { first: Duration::ZERO, ..Retries::default().pauses },
            ..Retries::default()
        };
        let limiter = RateLimiter::new(50.0, 10.0);
        let client = ApiClient::new("compute", Fixed, CloudCalls::default(), limiter, retries).unwrap();
        let question = Question { api: &API, action: "zones.list", endpoint: &server.url, longest: 1024 };
        let begun = Instant::now();
        client.ask::<Value>(question, |client| client.get(&server.url)).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        // The client pauses for 1 s. The measured time may be slightly shorter, because the pause and the test use different clocks.
        assert!(begun.elapsed() > Duration::from_millis(900), "{:?}", begun.elapsed());
    }
}
