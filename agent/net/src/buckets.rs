//! Objects in buckets, which are read with credentials.

use std::fmt;
use std::pin::Pin;

use reqwest::header::HeaderMap;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Url};

use crate::http::{HttpError, client_with_policy};
use crate::redirects;

/// The stores from which files can be downloaded with this machine's own credentials.
pub trait Buckets: Send + Sync {
    /// Whether a URL is in one of the stores. Sends no request.
    fn locates(&self, url: &str) -> bool;

    /// How to request the object at a URL. The location stays usable for at least two minutes.
    fn locate<'a>(&'a self, url: &'a str) -> Locating<'a>;
}

pub type Locating<'a> = Pin<Box<dyn Future<Output = Result<Location, NotLocated>> + Send + 'a>>;

/// How to request an object over HTTP. A location may contain a credential. So `Debug` shows only the host, and only
/// a [`LocationClient`] can send the request.
#[derive(Clone)]
pub struct Location {
    /// The URL of the object. It may be signed.
    pub url: Url,
    /// The size of the object in bytes. `None` if the size is unknown.
    pub size: Option<u64>,
    headers: HeaderMap,
}

impl Location {
    /// A location without extra request headers. Its URL may be signed.
    pub fn new(url: Url) -> Location {
        Location { url, size: None, headers: HeaderMap::new() }
    }

    /// Sets extra headers, such as a token, for all requests to this location.
    #[must_use]
    pub fn with_headers(self, headers: HeaderMap) -> Location {
        Location { headers, ..self }
    }

    /// Sets the size of the object in bytes. `None` if the size is unknown.
    #[must_use]
    pub fn of_size(self, size: Option<u64>) -> Location {
        Location { size, ..self }
    }

    /// Whether requests to this location have extra headers. A request with extra headers follows no redirect, because
    /// the headers may contain a token.
    pub fn has_headers(&self) -> bool {
        !self.headers.is_empty()
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Location").field("host", &self.url.host_str()).finish_non_exhaustive()
    }
}

/// The error text if the response to a request with extra headers is a redirect.
pub const NOT_FOLLOWED: &str =
    "a request with this machine's credentials follows no redirect; use the URL to which the redirect leads";

/// Sends requests to locations. A request with extra headers follows no redirect. reqwest would strip `Authorization`
/// on a redirect to another host, but would send headers that it does not know, such as `X-Auth-Token`.
#[derive(Clone, Debug)]
pub struct LocationClient {
    following: Client,
    staying: Client,
}

impl LocationClient {
    /// A client for any server, like [`crate::http::client`].
    pub fn new() -> Result<LocationClient, HttpError> {
        LocationClient::built_by(client_with_policy)
    }

    /// Builds the two clients with `build`. The argument of `build` is the redirect policy of the client.
    pub fn built_by<E>(build: impl Fn(Policy) -> Result<Client, E>) -> Result<LocationClient, E> {
        Ok(LocationClient { following: build(redirects())?, staying: build(Policy::none())? })
    }

    /// A request for a location, with the extra headers of the location.
    pub fn request(&self, method: Method, at: &Location) -> RequestBuilder {
        let client = if at.has_headers() { &self.staying } else { &self.following };
        client.request(method, at.url.clone()).headers(at.headers.clone())
    }
}

/// Why an object cannot be requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLocated {
    /// The cause and the remedy. The text does not contain the URL.
    pub reason: String,
    /// Whether the store denies access to this machine. If so, the object may still exist.
    pub is_refused: bool,
    /// Whether a retry may help.
    pub may_pass: bool,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_tests::test_server::{TestServer, text};

    #[tokio::test]
    async fn only_requests_without_extra_headers_follow_redirects() {
        let elsewhere = TestServer::start(|request| async move {
            assert!(!request.headers().contains_key("x-auth-token"));
            Ok(text(200, "elsewhere"))
        })
        .await;
        let to = elsewhere.url.clone();
        let server = TestServer::start(move |_| {
            let mut answer = text(307, "");
            answer.headers_mut().insert("location", to.parse().unwrap());
            async move { Ok(answer) }
        })
        .await;
        let client = LocationClient::new().unwrap();
        let plain = Location::new(server.url.parse().unwrap());
        let headers = HeaderMap::from_iter([("x-auth-token".parse().unwrap(), "a".parse().unwrap())]);
        let with_token = plain.clone().with_headers(headers);
        for (at, status) in [(plain, 200), (with_token, 307)] {
            for method in [Method::GET, Method::HEAD] {
                let answer = client.request(method, &at).send().await.unwrap();
                assert_eq!(answer.status().as_u16(), status, "{at:?}");
            }
        }
    }
}
