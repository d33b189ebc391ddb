//! Microsoft Azure: the metadata service signs a document for a machine, and kops-controller calls the machine back.

mod answer;
pub mod arm;
pub mod attestation;
mod authenticate;
mod facts;
pub mod identify;
pub mod scale_sets;
pub mod tokens;
pub mod verify;

use std::sync::Arc;

use kops_agent_net::retry::Retries;
use kops_agent_spec::facts::CloudFacts;
use kops_agent_spec::{CloudProvider, KopsControllerOptions};

use crate::authenticate::{AuthenticationError, Authenticator};
use crate::calls::CloudCalls;
use crate::cloud::{Cloud, Machine};
use crate::control_plane::{ControlPlane, ControlPlaneError};
use crate::hosts::Enrolled;
use crate::metadata::{MetadataError, MetadataService};
use authenticate::AzureAuthenticator;
use identify::AzureControlPlane;

pub(crate) struct Azure;

#[async_trait::async_trait]
impl Cloud for Azure {
    fn provider(&self) -> CloudProvider {
        CloudProvider::Azure
    }

    fn variables(&self) -> &'static [&'static [&'static str]] {
        &[&[tokens::IDENTITY_VARIABLE]]
    }

    async fn observe(&self, facts: &mut CloudFacts, retries: Retries) -> Result<(), MetadataError> {
        let service = MetadataService::new(facts::endpoint_of_environment(), retries)?;
        facts.azure = Some(facts::observe(&service).await?);
        Ok(())
    }

    async fn authenticator(
        &self,
        machine: Machine<'_>,
    ) -> Result<Box<dyn Authenticator>, AuthenticationError> {
        let authenticator = AzureAuthenticator::new(machine.facts.azure.as_ref())?;
        Ok(Box::new(authenticator))
    }

    fn calls_back(&self) -> bool {
        true
    }

    async fn for_control_plane(
        &self,
        options: &KopsControllerOptions,
        calls: CloudCalls,
        _hosts: &Arc<Enrolled>,
    ) -> Result<Arc<dyn ControlPlane>, ControlPlaneError> {
        Ok(Arc::new(AzureControlPlane::new(options, calls).await?))
    }
}
