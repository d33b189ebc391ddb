//! The proof of a machine on Azure: its resource id, and a document that its metadata service signs for the request. The client of
//! the bootstrap server has it called back besides.
//!
//! kops-controller of kOps 1.36 and before takes no such document, but the machine's id in its place, and refuses any other token like
//! all that it refuses. So each third token is one for it.
//!
//! Source: upstream's `upup/pkg/fi/cloudup/azure/azuremetadata/authenticator.go`.

use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_net::http;
use kops_agent_net::retry::Retries;
use kops_agent_plan::bootstrap::azure_token;
use kops_agent_spec::facts::AzureFacts;
use reqwest::header::HeaderValue;

use super::facts::{self, endpoint_of_environment};
use crate::authenticate::{AuthenticationError, Authenticator};
use crate::metadata::{MetadataError, MetadataService};

/// Of so many tokens one is for kops-controller of kOps 1.36 and before.
const UNSIGNED_EACH: u32 = 3;

/// Has the metadata service sign.
#[derive(Debug)]
pub(super) struct AzureAuthenticator {
    resource_id: String,
    metadata: MetadataService,
    /// The tokens that were made.
    made: AtomicU32,
}

impl AzureAuthenticator {
    /// For the machine that these facts are of.
    ///
    /// # Errors
    /// If they do not say which that is, or there can be no HTTP client.
    pub(super) fn of(facts: Option<&AzureFacts>) -> Result<AzureAuthenticator, AuthenticationError> {
        AzureAuthenticator::at(endpoint_of_environment(), facts)
    }

    fn at(endpoint: String, facts: Option<&AzureFacts>) -> Result<AzureAuthenticator, AuthenticationError> {
        let resource_id = facts.map(|facts| facts.resource_id.clone()).unwrap_or_default();
        // It is one word of the token.
        if resource_id.is_empty() || resource_id.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(AuthenticationError::NoResourceId { value: resource_id });
        }
        let metadata = MetadataService::new(endpoint, Retries::default())
            .map_err(|error| AuthenticationError::NotSigned(error.to_string()))?;
        Ok(AzureAuthenticator { resource_id, metadata, made: AtomicU32::new(0) })
    }
}

impl Authenticator for AzureAuthenticator {
    fn token<'a>(&'a self, body: &'a [u8]) -> BoxFuture<'a, Result<HeaderValue, AuthenticationError>> {
        async {
            let failed = |error: MetadataError| AuthenticationError::NotSigned(error.to_string());
            let made = self.made.fetch_add(1, Ordering::Relaxed);
            let token = if made % UNSIGNED_EACH == UNSIGNED_EACH - 1 {
                let vm_id = facts::vm_id(&self.metadata).await.map_err(failed)?;
                azure_token::unsigned_token(&self.resource_id, &vm_id)
            } else {
                let nonce = azure_token::nonce(body);
                let document = facts::attested_document(&self.metadata, &nonce).await.map_err(failed)?;
                azure_token::token(&self.resource_id, &document)
            };
            http::secret(&token).map_err(|_| {
                AuthenticationError::NotSigned("the metadata service's document is no base64".into())
            })
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_tests::test_server::{TestServer, text};

    #[tokio::test]
    async fn each_request_has_a_document_of_its_own() {
        let server = TestServer::start(|request| async move {
            let asked_rightly = request.headers().get("metadata").is_some_and(|value| value == "true");
            let query = request.uri().query().unwrap_or_default().to_owned();
            let is_known = asked_rightly && request.uri().path() == "/metadata/attested/document";
            if asked_rightly && request.uri().path() == "/metadata/instance/compute" {
                return Ok(text(200, r#"{"vmId": "5c08b38e-1"}"#));
            }
            let nonce = query.split('&').find_map(|pair| pair.strip_prefix("nonce=")).unwrap_or_default();
            let answer = format!(r#"{{"encoding": "pkcs7", "signature": "{nonce}=="}}"#);
            Ok(if is_known { text(200, &answer) } else { text(400, "") })
        })
        .await;
        let facts = AzureFacts { resource_id: "/subscriptions/1/x".into() };
        let authenticator = AzureAuthenticator::at(server.url.clone(), Some(&facts)).unwrap();
        for body in [b"".as_slice(), b"test-body"] {
            let token = authenticator.token(body).await.unwrap();
            let expected = format!("x-azure-id /subscriptions/1/x {}==", azure_token::nonce(body));
            assert_eq!(token.to_str().unwrap(), expected);
            assert!(token.is_sensitive());
        }
        let unsigned = authenticator.token(b"").await.unwrap();
        assert_eq!(unsigned.to_str().unwrap(), "x-azure-id /subscriptions/1/x 5c08b38e-1");
        assert!(authenticator.token(b"").await.unwrap().to_str().unwrap().ends_with("=="));
    }

    #[tokio::test]
    async fn what_is_no_document_is_told() {
        let facts = AzureFacts { resource_id: "/subscriptions/1/x".into() };
        for answer in ["{}", r#"{"signature": ""}"#, r#"{"signature": "a\nb"}"#, "x"] {
            let server = TestServer::start(move |_| async move { Ok(text(200, answer)) }).await;
            let authenticator = AzureAuthenticator::at(server.url.clone(), Some(&facts)).unwrap();
            let error = authenticator.token(b"").await.unwrap_err();
            assert!(matches!(error, AuthenticationError::NotSigned(_)), "{answer}: {error}");
        }
        for resource_id in ["", "/a b", "/a\n"] {
            let facts = AzureFacts { resource_id: resource_id.into() };
            let error = AzureAuthenticator::at("http://127.0.0.1:1".into(), Some(&facts)).unwrap_err();
            assert!(error.to_string().contains("cloud.azure.resourceID"), "{error}");
        }
        assert!(AzureAuthenticator::at("http://127.0.0.1:1".into(), None).is_err());
    }
}
