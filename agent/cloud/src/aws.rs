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

use kops_agent_cluster::fleet::ObservedMachine;
use kops_agent_cluster::lifecycle_action::{Completion, LifecycleAction};
use kops_agent_net::retry::Retries;
use kops_agent_spec::facts::{AwsFacts, CloudFacts, Facts};
use kops_agent_spec::{CloudProvider, KopsControllerOptions};

use crate::authenticate::{AuthenticationError, Authenticator};
use crate::calls::CloudCalls;
use crate::cloud::{Cloud, Machine, WITHOUT_WAITING, WantedFacts};
use crate::control_plane::{ControlPlane, ControlPlaneError};
use crate::error::CloudError;
use crate::hosts::Enrolled;
use crate::metadata::MetadataError;
use crate::remembered::RememberedFacts;
use authenticate::AwsAuthenticator;
use identify::AwsControlPlane;
use instance_types::InstanceTypeError;

pub(crate) struct Aws;

#[async_trait::async_trait]
impl Cloud for Aws {
    fn provider(&self) -> CloudProvider {
        CloudProvider::Aws
    }

    fn variables(&self) -> &'static [&'static [&'static str]] {
        &[&["AWS_REGION"]]
    }

    async fn observe(&self, facts: &mut CloudFacts, retries: Retries) -> Result<(), MetadataError> {
        facts.aws = Some(facts::observe(&facts::endpoint_of_environment()?, retries).await?);
        Ok(())
    }

    async fn machine(&self, retries: Retries) -> Result<ObservedMachine, MetadataError> {
        facts::observe_machine(&facts::endpoint_of_environment()?, retries).await
    }

    async fn metadata(&self, path: &str, retries: Retries) -> Result<Option<String>, CloudError> {
        let item = path.strip_prefix("/meta-data/").ok_or_else(|| CloudError::NoMetadata {
            url: format!("metadata://aws{path}"),
            problem: "kOps reads only items below metadata://aws/meta-data/",
        })?;
        let endpoint = facts::endpoint_of_environment().map_err(CloudError::new)?;
        let imds = facts::Imds::at(&endpoint, retries).map_err(CloudError::new)?;
        imds.get(item).await.map_err(CloudError::new)
    }

    async fn complete(
        &self,
        facts: &mut Facts,
        wanted: WantedFacts,
        remembered: &RememberedFacts,
    ) -> Result<(), CloudError> {
        if wanted.instance_type {
            let learnt = learn_instance_type(facts, remembered, Retries::default()).await;
            learnt.map_err(CloudError::new)?;
        }
        Ok(())
    }

    async fn complete_for_show(&self, facts: &mut Facts, remembered: &RememberedFacts) {
        if let Err(error) = learn_instance_type(facts, remembered, WITHOUT_WAITING).await {
            log::warn!("the facts lack networkInterfaces and gpu: {error}");
        }
    }

    async fn assign_ipv6_prefix(&self) -> Result<String, CloudError> {
        let endpoint = facts::endpoint_of_environment().map_err(CloudError::new)?;
        ipv6_prefix::assign(&endpoint, None, Retries::default()).await.map_err(CloudError::new)
    }

    async fn instance_id(&self) -> Result<String, CloudError> {
        let endpoint = facts::endpoint_of_environment().map_err(CloudError::new)?;
        let told = facts::observe(&endpoint, Retries::default()).await.map_err(CloudError::new)?;
        Ok(told.instance_id)
    }

    async fn complete_lifecycle_action(
        &self,
        action: &LifecycleAction,
        uptime: Duration,
    ) -> Result<Completion, CloudError> {
        autoscaling::complete(action, uptime, autoscaling::RETRIES).await.map_err(CloudError::new)
    }

    async fn authenticator(
        &self,
        machine: Machine<'_>,
    ) -> Result<Box<dyn Authenticator>, AuthenticationError> {
        let region = machine.facts.aws.as_ref().map(|aws| aws.region.as_str()).unwrap_or_default();
        Ok(Box::new(AwsAuthenticator::of_region(region).await?))
    }

    async fn for_control_plane(
        &self,
        options: &KopsControllerOptions,
        calls: CloudCalls,
        _hosts: &Arc<Enrolled>,
    ) -> Result<Arc<dyn ControlPlane>, ControlPlaneError> {
        Ok(Arc::new(AwsControlPlane::new(options, calls).await?))
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
