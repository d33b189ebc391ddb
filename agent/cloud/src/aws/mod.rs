//! Amazon Web Services: EC2 instances, verified by STS and EC2.

pub(crate) mod authenticate;
pub(crate) mod autoscaling;
pub mod ec2;
mod endpoint;
pub(crate) mod facts;
pub mod identify;
pub(crate) mod instance_types;
pub mod instances;
pub(crate) mod ipv6_prefix;
mod query;
mod signing;
pub mod sts;
pub mod verify;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_net::retry::Retries;
use kops_agent_plan::lifecycle_action::{Completion, LifecycleAction};
use kops_agent_plan::resolve::Inputs;
use kops_agent_spec::facts::{AwsFacts, CloudFacts, Facts};
use kops_agent_spec::{CloudProvider, KopsControllerOptions};

use crate::authenticate::{AuthenticationError, Authenticator};
use crate::calls::CloudCalls;
use crate::cloud::{Cloud, Machine, WITHOUT_WAITING};
use crate::control_plane::{ControlPlane, ControlPlaneError};
use crate::error::CloudError;
use crate::hosts::Enrolled;
use crate::metadata::MetadataError;
use crate::remembered::RememberedFacts;
use authenticate::AwsAuthenticator;
use identify::AwsControlPlane;
use instance_types::InstanceTypeError;

pub(crate) struct Aws;

impl Cloud for Aws {
    fn provider(&self) -> CloudProvider {
        CloudProvider::Aws
    }

    fn variables(&self) -> &'static [&'static [&'static str]] {
        &[&["AWS_REGION"]]
    }

    fn observe<'a>(
        &'a self,
        facts: &'a mut CloudFacts,
        retries: Retries,
    ) -> BoxFuture<'a, Result<(), MetadataError>> {
        async move {
            facts.aws = Some(facts::observe(&facts::endpoint_of_environment()?, retries).await?);
            Ok(())
        }
        .boxed()
    }

    fn complete<'a>(
        &'a self,
        inputs: &'a mut Inputs,
        remembered: &'a RememberedFacts,
    ) -> BoxFuture<'a, Result<(), CloudError>> {
        async {
            if inputs.wants_instance_type() {
                let learnt = learn_instance_type(&mut inputs.facts, remembered, Retries::default()).await;
                learnt.map_err(CloudError::of)?;
            }
            Ok(())
        }
        .boxed()
    }

    fn complete_for_show<'a>(
        &'a self,
        facts: &'a mut Facts,
        remembered: &'a RememberedFacts,
    ) -> BoxFuture<'a, ()> {
        async {
            if let Err(error) = learn_instance_type(facts, remembered, WITHOUT_WAITING).await {
                log::warn!("networkInterfaces and gpu are left out: {error}");
            }
        }
        .boxed()
    }

    fn assign_ipv6_prefix(&self) -> BoxFuture<'_, Result<String, CloudError>> {
        async {
            let endpoint = facts::endpoint_of_environment().map_err(CloudError::of)?;
            ipv6_prefix::assign(&endpoint, None, Retries::default()).await.map_err(CloudError::of)
        }
        .boxed()
    }

    fn instance_id(&self) -> BoxFuture<'_, Result<String, CloudError>> {
        async {
            let endpoint = facts::endpoint_of_environment().map_err(CloudError::of)?;
            let told = facts::observe(&endpoint, Retries::default()).await.map_err(CloudError::of)?;
            Ok(told.instance_id)
        }
        .boxed()
    }

    fn complete_lifecycle_action<'a>(
        &'a self,
        action: &'a LifecycleAction,
        uptime: Duration,
    ) -> BoxFuture<'a, Result<Completion, CloudError>> {
        async move {
            autoscaling::complete(action, uptime, autoscaling::RETRIES).await.map_err(CloudError::of)
        }
        .boxed()
    }

    fn authenticator<'a>(
        &'a self,
        machine: Machine<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Authenticator>, AuthenticationError>> {
        async move {
            let region = machine.facts.aws.as_ref().map(|aws| aws.region.as_str()).unwrap_or_default();
            Ok(Box::new(AwsAuthenticator::of_region(region).await?) as Box<dyn Authenticator>)
        }
        .boxed()
    }

    fn for_control_plane<'a>(
        &'a self,
        options: &'a KopsControllerOptions,
        calls: CloudCalls,
        _hosts: &'a Arc<Enrolled>,
    ) -> BoxFuture<'a, Result<Arc<dyn ControlPlane>, ControlPlaneError>> {
        async { Ok(Arc::new(AwsControlPlane::of(options, calls).await?) as Arc<dyn ControlPlane>) }.boxed()
    }
}

async fn learn_instance_type(
    facts: &mut Facts,
    remembered: &RememberedFacts,
    retries: Retries,
) -> Result<(), InstanceTypeError> {
    let Some(aws) = &mut facts.cloud.aws else { return Ok(()) };
    let told = match remembered.instance_type(aws) {
        Some(remembered) => remembered,
        None => instance_types::of_region(&aws.region, &aws.instance_type, retries).await?,
    };
    AwsFacts::complete(aws, told);
    Ok(())
}
