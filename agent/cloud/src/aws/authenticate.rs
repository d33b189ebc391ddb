//! The proof of an AWS machine: it signs a `GetCallerIdentity` request, and kops-controller sends this request to STS.
//!
//! This module makes the first form of a token. Every kops-controller accepts it, and upstream's nodes send it: see
//! [`kops_agent_cluster::bootstrap::aws_token`].

use std::collections::BTreeMap;
use std::time::SystemTime;

use aws_sdk_s3::config::{Credentials, ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_cluster::bootstrap::aws_token::{
    PREFIX_V1, REQUEST_HASH_HEADER, STS_BODY, STS_CONTENT_TYPE, STS_SERVICE, body_hash,
};
use reqwest::Url;
use reqwest::header::HeaderValue;

use crate::authenticate::{AuthenticationError, Authenticator};
use crate::aws::endpoint;
use kops_agent_net::aws_sdk::{endpoint_of_environment, environment_variable, shared_config};
use kops_agent_net::http;

/// Signs with the default AWS credentials: on an instance, the credentials of its role.
#[derive(Debug)]
pub(crate) struct AwsAuthenticator {
    provider: SharedCredentialsProvider,
    region: String,
    /// The host of STS, with its port if it is not the default. The signature is valid for this host only.
    host: String,
}

impl AwsAuthenticator {
    pub(crate) async fn of_region(region: &str) -> Result<AwsAuthenticator, AuthenticationError> {
        if region.is_empty() {
            return Err(AuthenticationError::NoRegion);
        }
        // Credentials from the metadata service need no CA bundle, because the service has no TLS. Other sources of
        // credentials report a missing CA bundle themselves.
        let shared = shared_config(region).await?;
        let provider = shared.credentials_provider().ok_or_else(|| {
            AuthenticationError::NoCredentials("no source of credentials is configured".into())
        })?;
        let host = match set_endpoint(environment_variable)? {
            Some(host) => host,
            None => {
                let url = endpoint::amazon(STS_SERVICE, region, shared.use_dual_stack().unwrap_or(false));
                url.trim_start_matches("https://").to_owned()
            }
        };
        Ok(AwsAuthenticator { provider, region: region.to_owned(), host })
    }
}

#[async_trait::async_trait]
impl Authenticator for AwsAuthenticator {
    async fn token(&self, body: &[u8]) -> Result<HeaderValue, AuthenticationError> {
        let credentials = self
            .provider
            .provide_credentials()
            .await
            .map_err(|error| AuthenticationError::NoCredentials(error.to_string()))?;
        let headers = signed(&self.host, &self.region, &credentials, SystemTime::now(), body)?;
        let json = serde_json::to_vec(&headers).map_err(|error| not_signed(&error))?;
        http::secret(&format!("{PREFIX_V1}{}", STANDARD.encode(json))).map_err(|error| not_signed(&error))
    }
}

/// The headers of a signed request to STS. Each word of a header's name is capitalized, as in Go.
fn signed(
    host: &str,
    region: &str,
    credentials: &Credentials,
    time: SystemTime,
    body: &[u8],
) -> Result<BTreeMap<String, [String; 1]>, AuthenticationError> {
    let identity = credentials.clone().into();
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(STS_SERVICE)
        .time(time)
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| not_signed(&error))?
        .into();
    let (length, hash) = (STS_BODY.len().to_string(), body_hash(body));
    let content_type = ("Content-Type", STS_CONTENT_TYPE);
    let request_hash = (REQUEST_HASH_HEADER, hash.as_str());
    // The header `Content-Length` is signed, but the token omits it: kops-controller adds it when it sends the request to STS.
    let covered = [("Content-Length", length.as_str()), content_type, request_hash];
    let covered = covered.iter().copied();
    let url = format!("https://{host}/");
    let signable = SignableRequest::new("POST", url, covered, SignableBody::Bytes(STS_BODY.as_bytes()))
        .map_err(|error| not_signed(&error))?;
    let (instructions, _signature) =
        sign(signable, &parameters).map_err(|error| not_signed(&error))?.into_parts();
    let headers = [content_type, request_hash].into_iter().chain(instructions.headers());
    Ok(headers.map(|(name, value)| (spelled_as_in_go(name), [value.to_owned()])).collect())
}

/// A header's name with each of its words capitalized.
fn spelled_as_in_go(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
    });
    words.collect::<Vec<_>>().join("-")
}

/// The host of STS in the environment's endpoint URL; `None` if the environment sets no endpoint.
fn set_endpoint(variable: impl Fn(&str) -> Option<String>) -> Result<Option<String>, AuthenticationError> {
    let Some((variable, value)) = endpoint_of_environment("STS", variable) else { return Ok(None) };
    let url = Url::parse(&value).ok();
    let host = url.as_ref().and_then(|url| {
        let host = url.host_str().filter(|host| !host.is_empty())?;
        Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
    });
    host.map(Some).ok_or(AuthenticationError::Endpoint { variable, value })
}

fn not_signed(cause: &dyn std::error::Error) -> AuthenticationError {
    AuthenticationError::NotSigned(format!("a request to STS cannot be signed: {cause}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::{Duration, UNIX_EPOCH};

    use kops_agent_cluster::bootstrap::aws_token::{AwsToken, Expected};

    use super::*;
    use kops_agent_spec::failure::Failing as _;

    /// 2024-05-18 13:19:02 UTC.
    const SECONDS: u64 = 1_716_038_342;

    fn header(session: Option<&str>, body: &[u8]) -> BTreeMap<String, [String; 1]> {
        let session = session.map(str::to_owned);
        let credentials = Credentials::new("fakeaccesskey", "fakesecretkey", session, None, "test");
        let time = UNIX_EPOCH + Duration::from_secs(SECONDS);
        signed("sts.amazonaws.com", "us-east-1", &credentials, time, body).unwrap()
    }

    /// The test vector of upstream's `TestAWSV1Request`.
    #[test]
    fn a_request_is_signed_as_upstreams_nodes_sign_it() {
        let expected = [
            (
                "Authorization",
                "AWS4-HMAC-SHA256 Credential=fakeaccesskey/20240518/us-east-1/sts/aws4_request, \
                 SignedHeaders=content-length;content-type;host;x-amz-date;x-kops-request-sha, \
                 Signature=198684464845d2d52947df10171b6291e1b2223ce4bd82a380087761d91246f9",
            ),
            ("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"),
            ("X-Amz-Date", "20240518T131902Z"),
            ("X-Kops-Request-Sha", "2dhlzFTsYGePGxGQhK15rn+TV9HEUZxkV94zFLf7uoo"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), [value.to_owned()]));
        assert_eq!(header(None, b"test-body"), BTreeMap::from(expected));
    }

    #[test]
    fn the_session_token_of_a_role_is_signed_and_sent() {
        let headers = header(Some("session"), b"test-body");
        assert_eq!(headers["X-Amz-Security-Token"], ["session"]);
        assert!(
            headers["Authorization"][0].contains(";x-amz-date;x-amz-security-token;x-kops-request-sha, ")
        );
    }

    #[tokio::test]
    async fn our_own_kops_controller_accepts_the_token() {
        let credentials = Credentials::new("AKIDEXAMPLE", "secret", Some("session".into()), None, "test");
        let authenticator = AwsAuthenticator {
            provider: SharedCredentialsProvider::new(credentials),
            region: "eu-west-1".into(),
            host: "sts.eu-west-1.amazonaws.com".into(),
        };
        let token = authenticator.token(b"body").await.unwrap();
        assert!(token.is_sensitive());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let expected = Expected {
            sts_host: "sts.eu-west-1.amazonaws.com",
            region: "eu-west-1",
            now: now.try_into().unwrap(),
        };
        let parse = |body: &[u8]| AwsToken::parse(token.to_str().unwrap(), body, &expected);
        assert!(parse(b"body").unwrap().is_ok());
        assert!(parse(b"other").unwrap().is_err());
    }

    #[test]
    fn the_environment_sets_the_sts_endpoint() {
        let with = |variables: &[(&str, &str)]| {
            set_endpoint(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(with(&[]).unwrap(), None);
        let both = [
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
            ("AWS_ENDPOINT_URL_STS", "https://sts.example.com/"),
        ];
        assert_eq!(with(&both).unwrap().as_deref(), Some("sts.example.com"));
        assert_eq!(with(&both[..1]).unwrap().as_deref(), Some("127.0.0.1:1"));
        let error = with(&[("AWS_ENDPOINT_URL", "here")]).unwrap_err();
        assert!(
            error.kind().is_configuration() && error.to_string().contains("AWS_ENDPOINT_URL is \"here\""),
            "{error}"
        );
    }
}
