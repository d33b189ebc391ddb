//! The key of a service account in a file. Google issues tokens for it to machines outside its cloud.
//!
//! Upstream's client accepts more kinds of application default credentials (`getGCSClient` in `util/pkg/vfs/context.go`). This
//! module supports only the kind that belongs to a machine.
//!
//! Source: Google, "Using OAuth 2.0 for Server to Server Applications" ("HTTP/REST"), "How Application Default Credentials works".

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kops_agent_net::http::{self, HttpError, innermost_cause};
use kops_agent_net::retry::{GaveUp, Retries};
use kops_agent_net::tls;
use kops_agent_spec::terminal::one_line;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode, Url};
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::sign::SigningKey;
use serde::Deserialize;
use serde_json::json;
use thiserror::Error;
use time::OffsetDateTime;

pub const VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// The right to read objects and to list buckets (Google, "OAuth 2.0 Scopes for Google APIs").
pub const READ_STORAGE: &str = "https://www.googleapis.com/auth/devstorage.read_only";
/// The maximum size of the file, in bytes. Google's files have about 2,400.
const LARGEST_FILE: u64 = 64 * 1024;
/// The maximum size of a response, in bytes. A response with a token has about 1,100.
const LONGEST_ANSWER: usize = 64 * 1024;
/// The maximum number of characters of Google's explanation in a message.
const LONGEST_REASON: usize = 300;
/// The requested lifetime of a token, in seconds: the longest that Google permits.
const LIFE: i64 = 3600;
const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const KIND: &str = "service_account";

/// Why a key file yields no token.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    #[error(
        "cannot read {path}, which {VARIABLE} names: {problem}; put the key of a service account there, or unset {VARIABLE}"
    )]
    Unreadable { path: String, problem: String },
    #[error(
        "{path}, which {VARIABLE} names, is not the key of a service account: {problem}; create a key with `gcloud \
         iam service-accounts keys create`"
    )]
    NoKey {
        path: String,
        /// The problem, without any content of the file.
        problem: String,
    },
    /// The file has credentials of a type that is not supported.
    #[error(
        "{path}, which {VARIABLE} names, has credentials of the type {kind:?}, {why}: give this machine the key of a \
         service account, from `gcloud iam service-accounts keys create`"
    )]
    OtherKind {
        path: String,
        /// Google's name of the type.
        kind: String,
        /// Why the type is not supported.
        why: &'static str,
    },
    /// The HTTP client cannot be created.
    #[error("cannot ask {server} for a token of {email}: {problem}")]
    NoClient { server: String, email: String, problem: String },
    /// The server does not respond.
    #[error(
        "cannot ask {server} for a token of {email}: {problem} ({attempts} attempts in {} s); check the network, DNS \
         and proxy",
        .waited.as_secs()
    )]
    Unreachable {
        server: String,
        email: String,
        /// The problem in the last attempt.
        problem: String,
        attempts: u32,
        waited: Duration,
    },
    /// The server rejects the request, or the response has no token.
    #[error(
        "{server} gives no token of {email} for the key in {path}: {problem}; check that the account and this key \
         exist, and that this machine's clock is right"
    )]
    Refused {
        server: String,
        email: String,
        /// The key file.
        path: String,
        problem: String,
    },
}

/// The key of a service account, and the server that issues tokens for it.
pub struct ServiceAccountKey {
    path: String,
    email: String,
    key_id: String,
    token_uri: Url,
    key: Arc<dyn SigningKey>,
}

/// The fields that are read from the file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Contents {
    #[serde(rename = "type")]
    kind: String,
    client_email: String,
    private_key_id: String,
    private_key: String,
    token_uri: String,
}

impl std::fmt::Debug for ServiceAccountKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ServiceAccountKey").field("email", &self.email).finish_non_exhaustive()
    }
}

impl ServiceAccountKey {
    /// The key in the file that `GOOGLE_APPLICATION_CREDENTIALS` names; `None` if the variable is not set.
    pub fn of_environment() -> Result<Option<ServiceAccountKey>, KeyError> {
        match std::env::var(VARIABLE).unwrap_or_default() {
            path if path.is_empty() => Ok(None),
            path => ServiceAccountKey::of_file(&path).map(Some),
        }
    }

    pub fn of_file(path: &str) -> Result<ServiceAccountKey, KeyError> {
        let unreadable = |problem: String| KeyError::Unreadable { path: path.to_owned(), problem };
        let is_file = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.is_file();
        if !is_file {
            return Err(unreadable("it is not a file".to_owned()));
        }
        let mut text = Vec::new();
        let read = File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_end(&mut text));
        read.map_err(|error| unreadable(error.to_string()))?;
        if text.len() as u64 > LARGEST_FILE {
            return Err(unreadable(format!("it is larger than {LARGEST_FILE} bytes")));
        }
        ServiceAccountKey::parse(&text, path)
    }

    fn parse(text: &[u8], path: &str) -> Result<ServiceAccountKey, KeyError> {
        let no_key = |problem: String| KeyError::NoKey { path: path.to_owned(), problem };
        // serde's error may repeat a value of the file, so only the position is shown.
        let contents: Contents = serde_json::from_slice(text).map_err(|error| {
            no_key(format!("its line {}, column {} is malformed", error.line(), error.column()))
        })?;
        let Contents { kind, client_email: email, private_key_id: key_id, private_key, token_uri } = contents;
        if kind != KIND {
            return Err(match why_not(&kind) {
                Some(why) => KeyError::OtherKind { path: path.to_owned(), kind, why },
                None => no_key(format!("its \"type\" is not {KIND:?}")),
            });
        }
        for (name, value) in
            [("client_email", &email), ("private_key", &private_key), ("token_uri", &token_uri)]
        {
            if value.is_empty() {
                return Err(no_key(format!("it has no {name:?}")));
            }
        }
        let token_uri = Url::parse(&token_uri).ok().filter(is_private_to_the_server);
        let token_uri =
            token_uri.ok_or_else(|| no_key("its \"token_uri\" is not an https:// URL".to_owned()))?;
        let key = PrivateKeyDer::from_pem_slice(private_key.as_bytes()).ok();
        let key = key.and_then(|der| any_supported_type(&der).ok()).filter(|key| signer(key).is_some());
        let key = key.ok_or_else(|| no_key("its \"private_key\" is not an RSA key in PEM".to_owned()))?;
        Ok(ServiceAccountKey { path: path.to_owned(), email, key_id, token_uri, key })
    }

    pub fn email(&self) -> &str {
        &self.email
    }

    /// A JWT about the account, signed with the account's key. It is valid from `now`, in seconds since 1970 (RFC 7523).
    fn assertion(&self, scope: &str, now: i64) -> Option<String> {
        let part = |document: serde_json::Value| URL_SAFE_NO_PAD.encode(document.to_string());
        let claims = json!({
            "iss": self.email, "scope": scope, "aud": self.token_uri.as_str(), "iat": now, "exp": now + LIFE
        });
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": self.key_id});
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = signer(&self.key)?.sign(signed.as_bytes()).ok()?;
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// Whether only the server can read a request to this URL. This is the case with HTTPS, and with HTTP on loopback. If the URL contains a
/// login, the result is `false`.
fn is_private_to_the_server(url: &Url) -> bool {
    let is_loopback =
        || url.host_str().is_some_and(|host| matches!(host, "127.0.0.1" | "[::1]" | "localhost"));
    let has_login = !url.username().is_empty() || url.password().is_some();
    url.has_host() && !has_login && (url.scheme() == "https" || url.scheme() == "http" && is_loopback())
}

fn signer(key: &Arc<dyn SigningKey>) -> Option<Box<dyn rustls::sign::Signer>> {
    key.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256])
}

/// Why credentials of this Google type are not supported; `None` if Google has no such type.
fn why_not(kind: &str) -> Option<&'static str> {
    match kind {
        "authorized_user" | "external_account_authorized_user" => {
            Some("the login of a person, which ends with that person's session")
        }
        "external_account" | "gdch_service_account" => {
            Some("which need a token of another identity provider, and kops-agent does not request one")
        }
        "impersonated_service_account" => {
            Some("which another account must request, and kops-agent requests only its own")
        }
        _ => None,
    }
}

#[derive(Debug)]
pub struct KeyTokens {
    key: ServiceAccountKey,
    scope: &'static str,
    client: Client,
    retries: Retries,
}

/// A token and its lifetime in seconds.
#[derive(Deserialize)]
pub(super) struct Granted {
    pub(super) access_token: String,
    pub(super) expires_in: u64,
}

enum Failure {
    Passing(String),
    Refused(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Failure::Passing(problem) | Failure::Refused(problem)) = self;
        formatter.write_str(problem)
    }
}

impl KeyTokens {
    /// Requests tokens for a scope. `retries` limits the attempts.
    pub fn new(key: ServiceAccountKey, scope: &'static str, retries: Retries) -> Result<KeyTokens, KeyError> {
        let (server, email) = (key.token_uri.to_string(), key.email.clone());
        let no_client =
            |problem: String| KeyError::NoClient { server: server.clone(), email: email.clone(), problem };
        tls::require_ca_bundle_for([server.as_str()]).map_err(|error| no_client(error.to_string()))?;
        // The client follows no redirect. A different server that gets the assertion could use it to get tokens for an hour.
        let client = tls::client_config().map_err(HttpError::from).and_then(http::client_with);
        let client = client.map_err(|error| no_client(error.to_string()))?;
        Ok(KeyTokens { key, scope, client, retries })
    }

    pub fn key(&self) -> &ServiceAccountKey {
        &self.key
    }

    pub(super) async fn ask(&self) -> Result<Granted, KeyError> {
        let server = self.key.token_uri.to_string();
        let deadline = |failure: &Failure| match failure {
            Failure::Passing(_) => Duration::MAX,
            Failure::Refused(_) => Duration::ZERO,
        };
        let asked = self.retries.run(&server, || self.ask_once(), deadline).await;
        asked.map_err(|GaveUp { error, attempts, waited }| {
            let email = self.key.email.clone();
            match error {
                Failure::Passing(problem) => {
                    KeyError::Unreachable { server, email, problem, attempts, waited }
                }
                Failure::Refused(problem) => self.refused(&problem),
            }
        })
    }

    pub(super) fn refused(&self, problem: &str) -> KeyError {
        let ServiceAccountKey { email, path, token_uri, .. } = &self.key;
        let (email, path, problem) = (email.clone(), path.clone(), problem.to_owned());
        KeyError::Refused { server: token_uri.to_string(), email, path, problem }
    }

    async fn ask_once(&self) -> Result<Granted, Failure> {
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let assertion = self.key.assertion(self.scope, now);
        let assertion = assertion.ok_or_else(|| Failure::Refused("the key cannot sign tokens".to_owned()))?;
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", GRANT)
            .append_pair("assertion", &assertion)
            .finish();
        let passing = |error: reqwest::Error| Failure::Passing(innermost_cause(error));
        let request = self.client.post(self.key.token_uri.clone()).timeout(self.retries.attempt);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(form);
        let answer = request.send().await.map_err(passing)?;
        let status = answer.status();
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(Failure::Passing(format!("it answers {status}")));
        }
        let body = http::body(answer, LONGEST_ANSWER).await.map_err(passing)?.unwrap_or_default();
        if status != StatusCode::OK {
            return Err(Failure::Refused(format!("it answers {status}{}", reason(&body))));
        }
        // The response may contain a token, so the error does not show the response.
        serde_json::from_slice(&body).map_err(|_| Failure::Refused("its answer is not a token".to_owned()))
    }
}

/// Google's reason for a rejection (RFC 6749, section 5.2).
fn reason(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
        #[serde(default)]
        error_description: String,
    }
    let Ok(Refusal { error, error_description }) = serde_json::from_slice(body) else { return String::new() };
    one_line(&format!(": {error} ({error_description})"), LONGEST_REASON)
}
