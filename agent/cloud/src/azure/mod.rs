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

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
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

impl Cloud for Azure {
    fn provider(&self) -> CloudProvider {
        CloudProvider::Azure
    }

    fn variables(&self) -> &'static [&'static [&'static str]] {
        &[&[tokens::IDENTITY_VARIABLE]]
    }

    fn observe<'a>(
        &'a self,
        facts: &'a mut CloudFacts,
        retries: Retries,
    ) -> BoxFuture<'a, Result<(), MetadataError>> {
        async move {
            let service = MetadataService::new(facts::endpoint_of_environment(), retries)?;
            facts.azure = Some(facts::observe(&service).await?);
            Ok(())
        }
        .boxed()
    }

    fn authenticator<'a>(
        &'a self,
        machine: Machine<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Authenticator>, AuthenticationError>> {
        async move {
            let authenticator = AzureAuthenticator::of(machine.facts.azure.as_ref())?;
            Ok(Box::new(authenticator) as Box<dyn Authenticator>)
        }
        .boxed()
    }

    fn calls_back(&self) -> bool {
        true
    }

    fn for_control_plane<'a>(
        &'a self,
        options: &'a KopsControllerOptions,
        calls: CloudCalls,
        _hosts: &'a Arc<Enrolled>,
    ) -> BoxFuture<'a, Result<Arc<dyn ControlPlane>, ControlPlaneError>> {
        async { Ok(Arc::new(AzureControlPlane::of(options, calls).await?) as Arc<dyn ControlPlane>) }.boxed()
    }
}
