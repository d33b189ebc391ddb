//! The implementation of `Cloud` for clouds that list machines.

use std::marker::PhantomData;
use std::sync::Arc;

use kops_agent_spec::facts::CloudFacts;
use kops_agent_spec::{CloudProvider, KopsControllerOptions};
use reqwest::header::HeaderMap;

use super::authenticate::IdAuthenticator;
use super::{Listed, ListedControlPlane, ProvenBy};
use crate::authenticate::{AuthenticationError, Authenticator};
use crate::calls::CloudCalls;
use crate::cloud::{Cloud, Machine};
use crate::control_plane::{ControlPlane, ControlPlaneError};
use crate::error::CloudError;
use crate::hosts::Enrolled;
use crate::metadata::{MetadataError, MetadataService};

/// A cloud whose API lists its machines. `M` is the type of these machines.
pub(crate) struct ListedCloud<M>(PhantomData<fn() -> M>);

impl<M> ListedCloud<M> {
    pub(crate) const fn new() -> ListedCloud<M> {
        ListedCloud(PhantomData)
    }
}

#[async_trait::async_trait]
impl<M: Listed> Cloud for ListedCloud<M> {
    fn provider(&self) -> CloudProvider {
        M::PROVIDER
    }

    fn variables(&self) -> &'static [&'static [&'static str]] {
        M::VARIABLES
    }

    async fn observe(
        &self,
        facts: &mut CloudFacts,
        retries: kops_agent_net::retry::Retries,
    ) -> Result<(), MetadataError> {
        M::observe(facts, retries).await
    }

    async fn metadata(
        &self,
        path: &str,
        retries: kops_agent_net::retry::Retries,
    ) -> Result<Option<String>, CloudError> {
        let unsupported = CloudError::Unsupported { provider: M::PROVIDER, action: "read metadata:// URLs" };
        let (endpoint, items) = M::METADATA.ok_or(unsupported)?;
        let service = MetadataService::new(endpoint, retries).map_err(CloudError::new)?;
        service.get(&format!("{items}{path}"), &HeaderMap::new()).await.map_err(CloudError::new)
    }

    async fn authenticator(
        &self,
        machine: Machine<'_>,
    ) -> Result<Box<dyn Authenticator>, AuthenticationError> {
        let authenticator = IdAuthenticator::new::<M>(M::id_of(machine.facts).unwrap_or_default())?;
        Ok(Box::new(authenticator))
    }

    fn calls_back(&self) -> bool {
        M::PROVEN_BY == ProvenBy::CallBack
    }

    async fn for_control_plane(
        &self,
        options: &KopsControllerOptions,
        calls: CloudCalls,
        _hosts: &Arc<Enrolled>,
    ) -> Result<Arc<dyn ControlPlane>, ControlPlaneError> {
        Ok(Arc::new(ListedControlPlane::<M>::new(options, calls).await?))
    }
}
