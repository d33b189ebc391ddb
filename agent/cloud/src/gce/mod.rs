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
use authenticate::GceAuthenticator;
use identify::GceControlPlane;

pub(crate) struct Gce;

impl Cloud for Gce {
    fn provider(&self) -> CloudProvider {
        CloudProvider::Gce
    }

    fn variables(&self) -> &'static [&'static [&'static str]] {
        &[&[service_account::VARIABLE]]
    }

    fn observe<'a>(
        &'a self,
        facts: &'a mut CloudFacts,
        retries: Retries,
    ) -> BoxFuture<'a, Result<(), MetadataError>> {
        async move {
            let service = MetadataService::new(facts::endpoint_of_environment(), retries)?;
            facts.gce = Some(facts::observe(&service).await?);
            Ok(())
        }
        .boxed()
    }

    fn authenticator<'a>(
        &'a self,
        machine: Machine<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Authenticator>, AuthenticationError>> {
        async move {
            let authenticator = GceAuthenticator::of(machine.facts.gce.as_ref(), machine.tpm.clone())?;
            Ok(Box::new(authenticator) as Box<dyn Authenticator>)
        }
        .boxed()
    }

    fn for_control_plane<'a>(
        &'a self,
        options: &'a KopsControllerOptions,
        calls: CloudCalls,
        _hosts: &'a Arc<Enrolled>,
    ) -> BoxFuture<'a, Result<Arc<dyn ControlPlane>, ControlPlaneError>> {
        async { Ok(Arc::new(GceControlPlane::of(options, calls).await?) as Arc<dyn ControlPlane>) }.boxed()
    }
}
