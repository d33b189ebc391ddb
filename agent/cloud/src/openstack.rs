//! OpenStack: servers send their UUID to kops-controller, from their own addresses.

mod config_drive;
pub mod facts;
pub mod keystone;
mod servers;
pub mod settings;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use kops_agent_cluster::identity::openstack::OpenstackServer;
use kops_agent_net::retry::Retries;
use kops_agent_spec::facts::{CloudFacts, Facts, OpenstackFacts};
use kops_agent_spec::{CloudProvider, KopsControllerOptions};
use reqwest::header::HeaderMap;

use crate::authenticate::{AuthenticationError, Authenticator};
use crate::calls::CloudCalls;
use crate::cloud::{Cloud, Machine, WITHOUT_WAITING, WantedFacts};
use crate::control_plane::{ControlPlane, ControlPlaneError};
use crate::error::CloudError;
use crate::hosts::Enrolled;
use crate::inventory::{IdAuthenticator, Inventory, Listed as _, ListedControlPlane, ListedVerifier};
use crate::metadata::MetadataService;
use crate::remembered::RememberedFacts;

pub type OpenstackServers = Inventory<OpenstackServer>;
pub type OpenstackVerifier = ListedVerifier<OpenstackServer>;

pub(crate) struct Openstack;

/// The metadata service is asked only if the configuration depends on its response, or if this machine must prove its identity.
#[async_trait::async_trait]
impl Cloud for Openstack {
    fn provider(&self) -> CloudProvider {
        CloudProvider::Openstack
    }

    fn variables(&self) -> &'static [&'static [&'static str]] {
        &[settings::VARIABLES]
    }

    async fn metadata(&self, path: &str, retries: Retries) -> Result<Option<String>, CloudError> {
        let service = MetadataService::new(facts::ENDPOINT, retries).map_err(CloudError::new)?;
        let path = format!("/latest/meta-data{path}");
        service.get(&path, &HeaderMap::new()).await.map_err(CloudError::new)
    }

    async fn complete(
        &self,
        facts: &mut Facts,
        wanted: WantedFacts,
        remembered: &RememberedFacts,
    ) -> Result<(), CloudError> {
        if wanted.address {
            learn_address(facts, facts::ENDPOINT, remembered).await;
        }
        Ok(())
    }

    async fn complete_for_show(&self, facts: &mut Facts, remembered: &RememberedFacts) {
        learn_address(facts, facts::ENDPOINT, remembered).await;
        match server_id(&CloudFacts::default(), Path::new("/"), facts::ENDPOINT, WITHOUT_WAITING).await {
            Ok(id) => facts.cloud.openstack.get_or_insert_default().server_id = id,
            Err(error) => log::warn!("{error}"),
        }
    }

    async fn authenticator(
        &self,
        machine: Machine<'_>,
    ) -> Result<Box<dyn Authenticator>, AuthenticationError> {
        let id = server_id(machine.facts, machine.root, facts::ENDPOINT, Retries::default()).await?;
        Ok(Box::new(IdAuthenticator::new::<OpenstackServer>(&id)?))
    }

    async fn for_control_plane(
        &self,
        options: &KopsControllerOptions,
        calls: CloudCalls,
        _hosts: &Arc<Enrolled>,
    ) -> Result<Arc<dyn ControlPlane>, ControlPlaneError> {
        let servers = ListedControlPlane::<OpenstackServer>::new(options, calls).await?;
        Ok(Arc::new(servers))
    }
}

/// The id of this server from its facts, else from its metadata.
async fn server_id(
    facts: &CloudFacts,
    root: &Path,
    endpoint: &str,
    retries: Retries,
) -> Result<String, AuthenticationError> {
    if let Some(id) = OpenstackServer::id_of(facts) {
        return Ok(id.to_owned());
    }
    facts::server_id(root, endpoint, retries).await
}

/// Adds the address of the server to the facts. If the metadata service does not give the address, the address from an earlier run is used,
/// because a server with a config drive may have no metadata service. A server without an address still becomes a node, as with upstream's
/// nodeup.
async fn learn_address(facts: &mut Facts, endpoint: &str, remembered: &RememberedFacts) {
    let asked = async {
        let service = MetadataService::new(endpoint, WITHOUT_WAITING)?;
        facts::local_ipv4(&service).await
    };
    let error = match asked.await {
        Ok(local_ipv4) => {
            facts.cloud.openstack.get_or_insert_default().local_ipv4 = local_ipv4;
            return;
        }
        Err(error) => error,
    };
    facts.cloud.openstack = match remembered.openstack_address(facts) {
        Some(address) => {
            log::warn!("{error}; kops-agent uses this machine's last known address, {address}");
            Some(OpenstackFacts { local_ipv4: address.to_owned(), ..OpenstackFacts::default() })
        }
        None => {
            log::warn!("{error}; the API server's certificate does not have this machine's address");
            None
        }
    };
}

#[cfg(test)]
mod metadata_tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_spec::facts::Interface;

    use super::*;
    use kops_agent_spec::failure::Failing as _;
    use kops_agent_tests::test_server::{TestServer, text};

    #[tokio::test]
    async fn the_id_comes_from_the_facts_or_the_metadata() {
        const ID: &str = "5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb";
        let root = tempfile::tempdir().unwrap();
        let mut facts = CloudFacts::default();
        let service = TestServer::start(|_| async { Ok(text(200, &format!(r#"{{"uuid": "{ID}"}}"#))) }).await;
        // Facts with an address but no id do not identify the server, so the metadata is read.
        facts.openstack = Some(OpenstackFacts { local_ipv4: "10.0.0.5".into(), ..OpenstackFacts::default() });
        assert_eq!(server_id(&facts, root.path(), &service.url, WITHOUT_WAITING).await.unwrap(), ID);
        let other = TestServer::start(|_| async { Ok(text(404, "")) }).await;
        let error = server_id(&facts, root.path(), &other.url, WITHOUT_WAITING).await.unwrap_err();
        assert!(!error.kind().is_configuration(), "a drive may be there in a moment");
        let error = error.to_string();
        assert!(error.contains("config-2") && error.contains("/openstack/latest/meta_data.json"), "{error}");

        facts.openstack = Some(OpenstackFacts { server_id: ID.into(), ..OpenstackFacts::default() });
        let tpm: Arc<dyn crate::tpm::OpenTpm> = Arc::new(crate::tpm::KernelTpm::at(Vec::new()));
        let (facts, tpm) = (&facts, &tpm);
        let machine = Machine { facts, tpm, hostname: "nodes-1a2b3c", root: root.path() };
        let token = Openstack.authenticator(machine).await.unwrap().token(b"").await.unwrap();
        assert_eq!(token, format!("x-openstack-id {ID}"));
    }

    async fn address(facts: &Facts, status: u16, remembered: &RememberedFacts) -> Option<String> {
        let server = TestServer::start(move |_| async move { Ok(text(status, "10.0.0.5")) }).await;
        let mut facts = facts.clone();
        learn_address(&mut facts, &server.url, remembered).await;
        facts.cloud.openstack.map(|openstack| openstack.local_ipv4)
    }

    #[tokio::test]
    async fn the_remembered_address_is_used_while_the_metadata_service_fails() {
        let nothing = RememberedFacts::default();
        let addresses = vec!["10.0.0.5/24".into()];
        let interfaces = vec![Interface { name: "ens3".into(), addresses, ..Interface::default() }];
        let facts = Facts { interfaces, ..Facts::default() };
        assert_eq!(address(&facts, 403, &nothing).await, None);
        assert_eq!(address(&facts, 200, &nothing).await.unwrap(), "10.0.0.5");

        let mut told = facts.clone();
        told.cloud.openstack =
            Some(OpenstackFacts { local_ipv4: "10.0.0.5".into(), ..OpenstackFacts::default() });
        let remembered = nothing.clone().with(&told, None);
        assert_eq!(address(&facts, 403, &remembered).await.unwrap(), "10.0.0.5");
        assert_eq!(address(&Facts::default(), 403, &remembered).await, None, "it is another machine's");
    }
}
