//! A GCE instance, by its metadata server.

use std::time::Duration;

use kops_agent_plan::facts::GceFacts;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::Deserialize;

use super::metadata::{MetadataError, MetadataService};

/// Where the metadata server is; `GCE_METADATA_HOST`, which Google's own clients know, moves it.
pub(super) fn endpoint_of_environment() -> String {
    let host = std::env::var("GCE_METADATA_HOST").ok().filter(|host| !host.is_empty());
    format!("http://{}", host.as_deref().unwrap_or("169.254.169.254"))
}

/// Asks which instance this is.
///
/// # Errors
/// If the server cannot be asked, or is none of GCE.
pub(super) async fn observe(service: &MetadataService) -> Result<GceFacts, MetadataError> {
    let mut headers = HeaderMap::new();
    headers.insert("metadata-flavor", HeaderValue::from_static("Google"));
    let get = async |item: &str| service.get_needed(&format!("/computeMetadata/v1/{item}"), &headers).await;
    Ok(GceFacts { hostname: get("instance/hostname").await?, project: get("project/project-id").await? })
}

/// A token by which Google's services know this instance's service account.
pub struct AccessToken {
    /// What to say after `Bearer`. A secret.
    pub value: String,
    /// For how long it is good.
    pub lifetime: Duration,
}

/// Asks for a token (cloud.google.com/compute/docs/access/authenticate-workloads).
///
/// # Errors
/// If the server cannot be asked, or gives none: an instance may have no service account.
pub(super) async fn access_token(service: &MetadataService) -> Result<AccessToken, MetadataError> {
    #[derive(Deserialize)]
    struct Answer {
        access_token: String,
        expires_in: u64,
    }
    let path = "/computeMetadata/v1/instance/service-accounts/default/token";
    let mut headers = HeaderMap::new();
    headers.insert("metadata-flavor", HeaderValue::from_static("Google"));
    let answer = service.get_needed(path, &headers).await?;
    match serde_json::from_str(&answer) {
        Ok(Answer { access_token: value, expires_in }) => {
            Ok(AccessToken { value, lifetime: Duration::from_secs(expires_in) })
        }
        // The answer may hold the token, so it is not shown.
        Err(_) => Err(service.unusable(path, "its answer is no token")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::retry::Retries;
    use crate::test_server::{TestServer, text};

    #[tokio::test]
    async fn an_instance_is_observed() {
        let server = TestServer::start(|request| async move {
            let asked_rightly =
                request.headers().get("metadata-flavor").is_some_and(|flavor| flavor == "Google");
            Ok(match request.uri().path() {
                _ if !asked_rightly => text(403, ""),
                "/computeMetadata/v1/instance/hostname" => text(200, "nodes-1.c.project.internal\n"),
                "/computeMetadata/v1/project/project-id" => text(200, "project"),
                _ => text(404, ""),
            })
        })
        .await;
        let service = MetadataService::new(server.url.clone(), Retries::default()).unwrap();
        let facts = observe(&service).await.unwrap();
        assert_eq!(
            facts,
            GceFacts { hostname: "nodes-1.c.project.internal".into(), project: "project".into() }
        );
    }

    #[tokio::test]
    async fn another_service_is_not_taken_for_gce() {
        let server = TestServer::start(|_| async { Ok(text(404, "")) }).await;
        let service = MetadataService::new(server.url.clone(), Retries::default()).unwrap();
        let error = observe(&service).await.unwrap_err().to_string();
        assert!(error.contains("instance/hostname: it is empty or does not exist"), "{error}");
    }

    #[tokio::test]
    async fn a_token_is_asked_for_and_what_is_none_is_not_shown() {
        let server = TestServer::start(|request| async move {
            let flavor = request.headers().get("metadata-flavor").is_some_and(|flavor| flavor == "Google");
            Ok(match request.uri().path() {
                "/computeMetadata/v1/instance/service-accounts/default/token" if flavor => {
                    text(200, r#"{"access_token": "hidden", "expires_in": 3599, "token_type": "Bearer"}"#)
                }
                "/none/computeMetadata/v1/instance/service-accounts/default/token" => {
                    text(200, r#"{"access_token": "hidden"}"#)
                }
                _ => text(404, ""),
            })
        })
        .await;
        let at =
            |path: &str| MetadataService::new(format!("{}{path}", server.url), Retries::default()).unwrap();
        let token = access_token(&at("")).await.unwrap();
        assert_eq!((token.value.as_str(), token.lifetime.as_secs()), ("hidden", 3599));
        let error = access_token(&at("/none")).await.err().unwrap().to_string();
        assert!(error.contains("is no token") && !error.contains("hidden"), "{error}");
    }
}
