//! The proof of an Azure machine: its resource id, and a document that its metadata service signs for the request.
//! kops-controller also calls the machine back, which the bootstrap client handles.
//!
//! kops-controller of kOps 1.36 and older accepts no such document. Each release accepts its own form of token, and answers 403
//! to every other form. A machine does not know the release before it has its configuration. So it changes the form after each
//! round in which a server answers 403.
//!
//! Source: upstream's `upup/pkg/fi/cloudup/azure/azuremetadata/authenticator.go`; `upup/pkg/fi/cloudup/azure/authenticator.go`
//! at v1.34.3, v1.35.2 and v1.36.2.

use std::sync::atomic::{AtomicUsize, Ordering};

use kops_agent_cluster::bootstrap::azure_token;
use kops_agent_net::http;
use kops_agent_net::retry::Retries;
use kops_agent_spec::facts::AzureFacts;
use reqwest::header::HeaderValue;

use super::facts::{self, endpoint_of_environment};
use crate::authenticate::{AuthenticationError, Authenticator};
use crate::metadata::{MetadataError, MetadataService};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The token has a signed document, for kops-controller of kOps 1.37, and for kops-agent's server with any kOps release.
    Signed,
    /// The token has no document, for kops-controller of kOps 1.35 and 1.36.
    Unsigned,
    /// The token has no document, for kops-controller of kOps 1.34.
    UnsignedOf134,
}

/// The order in which the forms are tried. After each refusal, the next form is tried. kops-controller of kOps 1.37 rejects even the form
/// for kOps 1.37 with 403 until Azure lists the machine. Therefore every second try uses the form for kOps 1.37.
const FORMS: [Form; 4] = [Form::Signed, Form::Unsigned, Form::Signed, Form::UnsignedOf134];

/// Makes tokens with documents that the metadata service signs.
#[derive(Debug)]
pub(super) struct AzureAuthenticator {
    resource_id: String,
    metadata: MetadataService,
    /// How often [`Authenticator::refused`] was called.
    refused: AtomicUsize,
}

impl AzureAuthenticator {
    pub(super) fn new(facts: Option<&AzureFacts>) -> Result<AzureAuthenticator, AuthenticationError> {
        AzureAuthenticator::at(endpoint_of_environment(), facts)
    }

    fn at(endpoint: String, facts: Option<&AzureFacts>) -> Result<AzureAuthenticator, AuthenticationError> {
        let resource_id = facts.map(|facts| facts.resource_id.clone()).unwrap_or_default();
        // The resource id is one word of the token, so it must not contain spaces.
        if resource_id.is_empty() || resource_id.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(AuthenticationError::NoResourceId { value: resource_id });
        }
        let metadata = MetadataService::new(endpoint, Retries::default())
            .map_err(|error| AuthenticationError::NotSigned(error.to_string()))?;
        Ok(AzureAuthenticator { resource_id, metadata, refused: AtomicUsize::new(0) })
    }
}

#[async_trait::async_trait]
impl Authenticator for AzureAuthenticator {
    async fn token(&self, body: &[u8]) -> Result<HeaderValue, AuthenticationError> {
        let failed = |error: MetadataError| AuthenticationError::NotSigned(error.to_string());
        let form = FORMS[self.refused.load(Ordering::Relaxed) % FORMS.len()];
        let token = if form == Form::Signed {
            let nonce = azure_token::nonce(body);
            let document = facts::attested_document(&self.metadata, &nonce).await.map_err(failed)?;
            azure_token::token(&self.resource_id, &document)
        } else {
            let vm_id = facts::vm_id(&self.metadata).await.map_err(failed)?;
            let of_1_34 = match form {
                Form::UnsignedOf134 => azure_token::unsigned_token_of_1_34(&self.resource_id, &vm_id),
                Form::Signed | Form::Unsigned => None,
            };
            of_1_34.unwrap_or_else(|| azure_token::unsigned_token(&self.resource_id, &vm_id))
        };
        http::secret(&token).map_err(|_| {
            AuthenticationError::NotSigned("the metadata service's document is not base64".into())
        })
    }

    fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_tests::azure::resource_id;
    use kops_agent_tests::test_server::{TestServer, text};

    const SET: &str = "nodes.c.example.com";
    const VM_ID: &str = "5c08b38e-4d57-4c23-ac45-aca61037f084";

    /// A metadata service whose signed documents consist of the nonce.
    async fn metadata() -> TestServer {
        TestServer::start(|request| async move {
            let asked_rightly = request.headers().get("metadata").is_some_and(|value| value == "true");
            let query = request.uri().query().unwrap_or_default().to_owned();
            let nonce = query.split('&').find_map(|pair| pair.strip_prefix("nonce=")).unwrap_or_default();
            Ok(match request.uri().path() {
                _ if !asked_rightly => text(400, ""),
                "/metadata/instance/compute" => text(200, &format!(r#"{{"vmId": "{VM_ID}"}}"#)),
                "/metadata/attested/document" => {
                    text(200, &format!(r#"{{"encoding": "pkcs7", "signature": "{nonce}=="}}"#))
                }
                _ => text(404, ""),
            })
        })
        .await
    }

    async fn token(authenticator: &AzureAuthenticator, body: &[u8]) -> String {
        let token = authenticator.token(body).await.unwrap();
        assert!(token.is_sensitive());
        token.to_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn each_request_gets_its_own_document() {
        let server = metadata().await;
        let facts = AzureFacts { resource_id: "/subscriptions/1/x".into() };
        let authenticator = AzureAuthenticator::at(server.url.clone(), Some(&facts)).unwrap();
        for body in [b"".as_slice(), b"test-body", b"another"] {
            let expected = format!("x-azure-id /subscriptions/1/x {}==", azure_token::nonce(body));
            assert_eq!(token(&authenticator, body).await, expected);
        }
    }

    /// Whether kops-controller of this release accepts the form of the token (`VerifyToken` in upstream's
    /// `upup/pkg/fi/cloudup/azure/verifier.go`).
    fn is_taken_by(release: &str, token: &str) -> bool {
        let words: Vec<&str> = token.strip_prefix("x-azure-id ").unwrap().split(' ').collect();
        let is_own = |resource: &str| resource == resource_id(SET, 3);
        match (release, words.as_slice()) {
            ("1.34", [vm_id, scale_set, number]) => (*vm_id, *scale_set, *number) == (VM_ID, SET, "3"),
            ("1.35" | "1.36", [resource, vm_id]) => is_own(resource) && *vm_id == VM_ID,
            ("1.37", [resource, document]) => is_own(resource) && document.ends_with("=="),
            _ => false,
        }
    }

    #[tokio::test]
    async fn a_token_form_is_kept_until_a_server_rejects_it() {
        let server = metadata().await;
        let facts = AzureFacts { resource_id: resource_id(SET, 3) };
        for (release, refusals) in [("1.34", 3), ("1.35", 1), ("1.36", 1), ("1.37", 0)] {
            let authenticator = AzureAuthenticator::at(server.url.clone(), Some(&facts)).unwrap();
            for _ in 0..refusals {
                // The form stays the same until a server rejects the token.
                for _ in 0..2 {
                    let token = token(&authenticator, b"").await;
                    assert!(!is_taken_by(release, &token), "{release}: {token}");
                }
                authenticator.refused();
            }
            for _ in 0..2 {
                let token = token(&authenticator, b"").await;
                assert!(is_taken_by(release, &token), "{release}: {token}");
            }
        }
    }

    #[tokio::test]
    async fn a_machine_outside_scale_sets_has_a_token_in_every_round() {
        let server = metadata().await;
        let facts = AzureFacts { resource_id: "/subscriptions/1/virtualMachines/a".into() };
        let authenticator = AzureAuthenticator::at(server.url.clone(), Some(&facts)).unwrap();
        (0..3).for_each(|_| authenticator.refused());
        let expected = format!("x-azure-id {} {VM_ID}", facts.resource_id);
        assert_eq!(token(&authenticator, b"").await, expected);
    }

    #[tokio::test]
    async fn an_invalid_document_is_an_error() {
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
