//! Objects of Google Cloud Storage for downloads, by its JSON API and as the instance's service account.
//!
//! No library of Google's: what is needed of it are two requests, and their libraries bring a TLS and an HTTP client
//! of their own.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use kops_agent_host::Location;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::StoreError;
use crate::cloud::gce_access_token;
use crate::http;
use crate::retry::Retries;

const ENDPOINT: &str = "https://storage.googleapis.com";
/// A token is not used so close to its end: a download may begin a while after it was asked how large it is.
const SPARE: Duration = Duration::from_secs(120);
/// How long asking for an object's size may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// On a machine that is none of GCE no patience helps, and the metadata server is there before the node is.
const LONGEST: Duration = Duration::from_secs(15);

/// Every bucket.
pub(super) struct Gs {
    client: Client,
    endpoint: String,
    /// Where the metadata server is, if not where it usually is.
    metadata: Option<String>,
    retries: Retries,
    token: Mutex<Option<Token>>,
}

struct Token {
    /// `Bearer …`, marked as a secret.
    header: HeaderValue,
    good_until: Instant,
}

impl std::fmt::Debug for Gs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gs").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Gs {
    /// # Errors
    /// If there can be no HTTP client.
    pub(super) fn new(retries: Retries) -> Result<Gs, StoreError> {
        let client = http::client().map_err(|error| StoreError::BadSettings(error.to_string()))?;
        let retries = Retries { deadline: retries.deadline.min(LONGEST), ..retries };
        Ok(Gs { client, endpoint: ENDPOINT.into(), metadata: None, retries, token: Mutex::default() })
    }

    /// How to ask for an object. `object` is its name as in a URL, `url` what it is called in messages.
    pub(super) async fn locate(&self, url: &str, bucket: &str, object: &str) -> Result<Location, StoreError> {
        #[derive(Deserialize)]
        struct Metadata {
            size: String,
        }
        let name = escaped(&unescaped(object));
        let address = format!("{}/storage/v1/b/{}/o/{name}", self.endpoint, escaped(bucket));
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, self.token(url).await?);
        let unreachable = |cause: String| StoreError::Unreachable {
            url: url.into(),
            cause,
            attempts: 1,
            waited: Duration::ZERO,
        };
        let request = self.client.get(format!("{address}?fields=size")).headers(headers.clone());
        let answer = request
            .timeout(PATIENCE)
            .send()
            .await
            .map_err(|error| unreachable(super::s3::chain(&error.without_url())))?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => {
                return Err(StoreError::NotFound { url: url.into(), place: String::new() });
            }
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                return Err(StoreError::Credentials {
                    url: url.into(),
                    problem: format!(
                        "{status}; give the instance's service account storage.objects.get on the bucket (role \
                         roles/storage.objectViewer), and the instance the scope devstorage.read_only"
                    ),
                });
            }
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                return Err(unreachable(format!("it answers {status}")));
            }
            status => {
                let (code, message) = (String::new(), "is this the name of an object?".into());
                return Err(StoreError::Refused { url: url.into(), status: status.as_u16(), code, message });
            }
        }
        // Without it the download goes as well.
        let size = answer.json::<Metadata>().await.ok().and_then(|metadata| metadata.size.parse().ok());
        let address = Url::parse(&format!("{address}?alt=media"))
            .map_err(|_| StoreError::BadUrl { url: url.into(), problem: "it names no object" })?;
        Ok(Location { url: address, headers, size })
    }

    /// A token that is good for a while, asked for once.
    async fn token(&self, url: &str) -> Result<HeaderValue, StoreError> {
        let mut token = self.token.lock().await;
        if let Some(token) = token.as_ref().filter(|token| token.good_until > Instant::now()) {
            return Ok(token.header.clone());
        }
        let problem = |problem: String| StoreError::Credentials { url: url.into(), problem };
        let asked = Instant::now();
        let fresh = gce_access_token(self.metadata.as_deref(), self.retries).await.map_err(|error| {
            problem(format!("there is no token of the instance's service account: {error}"))
        })?;
        let mut header = HeaderValue::try_from(format!("Bearer {}", fresh.value))
            .map_err(|_| problem("the metadata server's token is none".into()))?;
        header.set_sensitive(true);
        *token =
            Some(Token { header: header.clone(), good_until: asked + fresh.lifetime.saturating_sub(SPARE) });
        Ok(header)
    }
}

/// A name as one segment of a path (RFC 3986, section 2.3).
fn escaped(name: &str) -> String {
    name.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
        escaped
    })
}

/// A name with the escapes of a URL resolved; a `%` that is none stays.
pub(super) fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::test_server::{TestServer, text};

    const URL: &str = "gs://assets/release/v1/a%2Bb";

    /// Google's storage and metadata server, as one.
    async fn google(tokens: Arc<AtomicU32>, lifetime: u32) -> TestServer {
        TestServer::start(move |request| {
            let tokens = Arc::clone(&tokens);
            async move {
                let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
                let lets_in = header("authorization") == Some("Bearer hidden");
                Ok(match (request.uri().path(), request.uri().query()) {
                    ("/computeMetadata/v1/instance/service-accounts/default/token", _) => {
                        tokens.fetch_add(1, Ordering::Relaxed);
                        text(200, &format!(r#"{{"access_token": "hidden", "expires_in": {lifetime}}}"#))
                    }
                    (_, _) if !lets_in => text(401, ""),
                    ("/storage/v1/b/assets/o/release%2Fv1%2Fa%2Bb", Some("fields=size")) => {
                        text(200, r#"{"size": "5"}"#)
                    }
                    ("/storage/v1/b/assets/o/release%2Fv1%2Fa%2Bb", Some("alt=media")) => text(200, "hello"),
                    ("/storage/v1/b/assets/o/secret", _) => text(403, ""),
                    ("/storage/v1/b/assets/o/busy", _) => text(503, ""),
                    _ => text(404, ""),
                })
            }
        })
        .await
    }

    fn gs(server: &TestServer) -> Gs {
        let gs = Gs::new(Retries::default()).unwrap();
        Gs { endpoint: server.url.clone(), metadata: Some(server.url.clone()), ..gs }
    }

    #[tokio::test]
    async fn an_object_is_asked_for_with_the_instances_token_which_is_asked_for_once() {
        let tokens = Arc::new(AtomicU32::new(0));
        let server = google(Arc::clone(&tokens), 3599).await;
        let gs = gs(&server);
        for _ in 0..3 {
            let Location { url, headers, size } = gs.locate(URL, "assets", "release/v1/a%2Bb").await.unwrap();
            assert_eq!(size, Some(5));
            let answer = gs.client.get(url).headers(headers.clone()).send().await.unwrap();
            assert_eq!(answer.text().await.unwrap(), "hello");
            assert!(!format!("{headers:?}").contains("hidden"));
        }
        assert_eq!(tokens.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_token_that_is_about_to_end_is_not_used_again() {
        let tokens = Arc::new(AtomicU32::new(0));
        let server = google(Arc::clone(&tokens), 30).await;
        let gs = gs(&server);
        for _ in 0..2 {
            gs.locate(URL, "assets", "release/v1/a%2Bb").await.unwrap();
        }
        assert_eq!(tokens.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn what_is_wrong_is_told_apart() {
        let server = google(Arc::default(), 3599).await;
        let gs = gs(&server);
        let error = async |object| gs.locate(URL, "assets", object).await.unwrap_err();
        assert!(matches!(error("none").await, StoreError::NotFound { .. }));
        assert!(matches!(error("busy").await, StoreError::Unreachable { .. }));
        let forbidden = error("secret").await.to_string();
        assert!(
            forbidden.contains("403 Forbidden") && forbidden.contains("storage.objects.get"),
            "{forbidden}"
        );
    }

    #[test]
    fn names_are_escaped_as_one_segment() {
        assert_eq!(escaped(&unescaped("a/b%2Fc d%zz%")), "a%2Fb%2Fc%20d%25zz%25");
    }
}
