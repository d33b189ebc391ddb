//! Objects of buckets that are read with credentials.

use std::fmt;
use std::pin::Pin;

use reqwest::header::HeaderMap;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Url};

use crate::http::{HttpError, client_for_the_world};
use crate::redirects;

/// The stores whose files can be downloaded with this machine's own credentials.
pub trait Buckets: Send + Sync {
    /// Whether this is the URL of such a file, by its scheme alone.
    fn locates(&self, url: &str) -> bool;

    /// How to ask for the object at a URL, for two minutes at least.
    fn locate<'a>(&'a self, url: &'a str) -> Locating<'a>;
}

pub type Locating<'a> = Pin<Box<dyn Future<Output = Result<Location, NotLocated>> + Send + 'a>>;

/// How to ask for an object over HTTP. It may hold a credential, so `Debug` shows nothing but the host, and only a
/// [`LocationClient`] can ask.
#[derive(Clone)]
pub struct Location {
    /// Where to ask; may be signed.
    pub url: Url,
    /// Its size in bytes, if that is known.
    pub size: Option<u64>,
    headers: HeaderMap,
}

impl Location {
    /// A place that a request needs no header for: its URL may be signed.
    pub fn of(url: Url) -> Location {
        Location { url, size: None, headers: HeaderMap::new() }
    }

    /// The same, where each request says this: a token, say.
    #[must_use]
    pub fn with_headers(self, headers: HeaderMap) -> Location {
        Location { headers, ..self }
    }

    /// The same, whose size in bytes may be known.
    #[must_use]
    pub fn of_size(self, size: Option<u64>) -> Location {
        Location { size, ..self }
    }

    /// Whether a request says more than where: it may have a token then, and follows no redirect.
    pub fn has_headers(&self) -> bool {
        !self.headers.is_empty()
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Location").field("host", &self.url.host_str()).finish_non_exhaustive()
    }
}

/// What an error says of a redirect that was answered to a request with headers of its own.
pub const NOT_FOLLOWED: &str =
    "a request with this machine's credentials follows no redirect; name the place to which it leads";

/// What asks for locations. A request with headers of its own follows no redirect: reqwest strips `Authorization` on the way to
/// another host, and no header that it does not know, as `X-Auth-Token`.
#[derive(Clone, Debug)]
pub struct LocationClient {
    following: Client,
    staying: Client,
}

impl LocationClient {
    /// For the world, as [`crate::http::client`] is.
    ///
    /// # Errors
    /// If TLS or a client cannot be set up.
    pub fn new() -> Result<LocationClient, HttpError> {
        LocationClient::built_by(client_for_the_world)
    }

    /// Of clients that are built otherwise, with the redirects that each is to follow.
    ///
    /// # Errors
    /// If one cannot be built.
    pub fn built_by<E>(build: impl Fn(Policy) -> Result<Client, E>) -> Result<LocationClient, E> {
        Ok(LocationClient { following: build(redirects())?, staying: build(Policy::none())? })
    }

    /// A request for what is there.
    pub fn request(&self, method: Method, at: &Location) -> RequestBuilder {
        let client = if at.has_headers() { &self.staying } else { &self.following };
        client.request(method, at.url.clone()).headers(at.headers.clone())
    }
}

/// Why an object cannot be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLocated {
    /// What is wrong, and what to do; without the URL.
    pub reason: String,
    /// Whether trying again may help.
    pub may_pass: bool,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_tests::test_server::{TestServer, text};

    #[tokio::test]
    async fn what_has_headers_of_its_own_is_led_nowhere_and_all_else_is() {
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
        let plain = Location::of(server.url.parse().unwrap());
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
