//! Google Compute Engine: instances of managed groups. The TPM of an instance signs its tokens.

mod answer;
pub(crate) mod authenticate;
pub mod compute;
pub(crate) mod facts;
pub mod identify;
pub mod managed_groups;
pub mod service_account;
pub mod tokens;
pub mod verify;

use std::sync::Arc;

use kops_agent_cluster::fleet::ObservedMachine;
use kops_agent_net::retry::Retries;
use kops_agent_spec::facts::CloudFacts;
use kops_agent_spec::{CloudProvider, KopsControllerOptions};

use crate::authenticate::{AuthenticationError, Authenticator};
use crate::calls::CloudCalls;
use crate::cloud::{Cloud, Machine};
use crate::control_plane::{ControlPlane, ControlPlaneError};
use crate::error::CloudError;
use crate::hosts::Enrolled;
use crate::metadata::{MetadataError, MetadataService};
use authenticate::GceAuthenticator;
use identify::GceControlPlane;

pub(crate) struct Gce;

#[async_trait::async_trait]
impl Cloud for Gce {
    fn provider(&self) -> CloudProvider {
        CloudProvider::Gce
    }

    fn variables(&self) -> &'static [&'static [&'static str]] {
        &[&[service_account::VARIABLE]]
    }

    async fn observe(&self, facts: &mut CloudFacts, retries: Retries) -> Result<(), MetadataError> {
        let service = MetadataService::new(facts::endpoint_of_environment(), retries)?;
        facts.gce = Some(facts::observe(&service).await?);
        Ok(())
    }

    async fn machine(&self, retries: Retries) -> Result<ObservedMachine, MetadataError> {
        facts::observe_machine(&MetadataService::new(facts::endpoint_of_environment(), retries)?).await
    }

    async fn metadata(&self, path: &str, retries: Retries) -> Result<Option<String>, CloudError> {
        let service =
            MetadataService::new(facts::endpoint_of_environment(), retries).map_err(CloudError::new)?;
        facts::item(&service, path.trim_start_matches('/')).await.map_err(CloudError::new)
    }

    async fn authenticator(
        &self,
        machine: Machine<'_>,
    ) -> Result<Box<dyn Authenticator>, AuthenticationError> {
        let authenticator = GceAuthenticator::new(machine.facts.gce.as_ref(), machine.tpm.clone())?;
        Ok(Box::new(authenticator))
    }

    async fn for_control_plane(
        &self,
        options: &KopsControllerOptions,
        calls: CloudCalls,
        _hosts: &Arc<Enrolled>,
    ) -> Result<Arc<dyn ControlPlane>, ControlPlaneError> {
        Ok(Arc::new(GceControlPlane::new(options, calls).await?))
    }
}
