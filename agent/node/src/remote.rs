//! The requests of this machine while it becomes a node: to its cloud, and to the discovery service.
//!
//! Source: upup/pkg/fi/nodeup/nodetasks/discovery_service_register.go, and client-go's server-side apply.

use std::time::Duration;

use kops_agent_cloud as cloud;
use kops_agent_cluster::lifecycle_action::{Completion, LifecycleAction};
use kops_agent_host::system::remote::Remote;
use kops_agent_net::{http, tls};
use kops_agent_pki::PemPair;
use kops_agent_plan::resource::{DiscoveryRegistration, Ipv6Prefix};
use kops_agent_spec::failure::{Failing as _, Failure, Kind};
use reqwest::Client;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde_json::Value;

use crate::machine;

/// The field manager of the registration. Upstream registers a machine under this name, too.
const FIELD_MANAGER: &str = "nodeup-register";
/// The timeout of registering with the discovery service. It is short because a control plane works without the
/// registration.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum length of a response that an error quotes.
const LONGEST_ANSWER: usize = 300;

/// Access to the cloud of this machine, and to services on other machines.
pub struct World;

#[async_trait::async_trait]
impl Remote for World {
    async fn assign_ipv6_prefix(&self) -> Result<(), Failure> {
        let prefix = cloud::for_provider(Ipv6Prefix::ASKED_OF)
            .assign_ipv6_prefix()
            .await
            .map_err(|error| Failure::new(error.kind(), error.to_string()))?;
        log::info!("this node's pods get their addresses from {prefix}");
        Ok(())
    }

    async fn register(
        &self,
        registration: &DiscoveryRegistration,
        identity: &PemPair,
    ) -> Result<(), Failure> {
        let config = tls::client_config_as(&identity.certificate, &identity.private_key);
        let config = config.map_err(|error| Failure::new(Kind::NoHttpClient, error.to_string()))?;
        let client =
            http::client_with(config).map_err(|error| Failure::new(error.kind(), error.to_string()))?;
        register(&client, registration).await
    }

    async fn complete_lifecycle_action(&self, action: &LifecycleAction) -> Result<Completion, Failure> {
        let done = cloud::for_provider(LifecycleAction::HELD_BY)
            .complete_lifecycle_action(action, machine::uptime())
            .await;
        done.map_err(|error| Failure::new(error.kind(), error.to_string()))
    }
}

async fn register(client: &Client, registration: &DiscoveryRegistration) -> Result<(), Failure> {
    let url = url_of(registration)
        .ok_or_else(|| Failure::new(Kind::InvalidResource, "its object has no namespace or no name"))?;
    let answer = client
        .patch(url)
        .timeout(TIMEOUT)
        .header(CONTENT_TYPE, "application/apply-patch+yaml")
        .header(ACCEPT, "application/json")
        .body(registration.object.clone())
        .send()
        .await
        .map_err(|error| Failure::new(Kind::ApiServerUnanswered, http::innermost_cause(error)))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let said = http::said(answer, LONGEST_ANSWER).await;
    Err(Failure::new(Kind::ApiServerRefused, format!("it answers {status} {said}").trim_end()))
}

/// The URL of the object that registers this machine.
fn url_of(registration: &DiscoveryRegistration) -> Option<String> {
    let object: Value = serde_json::from_str(&registration.object).ok()?;
    let metadata = &object["metadata"];
    Some(format!(
        "{}/apis/{}/namespaces/{}/discoveryendpoints/{}?fieldManager={FIELD_MANAGER}&force=false",
        registration.url.trim_end_matches('/'),
        object["apiVersion"].as_str()?,
        metadata["namespace"].as_str()?,
        metadata["name"].as_str()?
    ))
}

#[cfg(test)]
mod tests;
