//! The `Cloud` of clouds that list machines.

use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_spec::facts::CloudFacts;
use kops_agent_spec::{CloudProvider, KopsControllerOptions};

use super::authenticate::IdAuthenticator;
use super::{Listed, ListedControlPlane, ProvenBy};
use crate::authenticate::{AuthenticationError, Authenticator};
use crate::calls::CloudCalls;
use crate::cloud::{Cloud, Machine};
use crate::control_plane::{ControlPlane, ControlPlaneError};
use crate::hosts::Enrolled;
use crate::metadata::MetadataError;

/// The cloud that lists the machines `M`.
pub(crate) struct ListedCloud<M>(PhantomData<fn() -> M>);

impl<M> ListedCloud<M> {
    pub(crate) const fn new() -> ListedCloud<M> {
        ListedCloud(PhantomData)
    }
}

impl<M: Listed> Cloud for ListedCloud<M> {
    fn provider(&self) -> CloudProvider {
        M::PROVIDER
    }

    fn variables(&self) -> &'static [&'static [&'static str]] {
        M::VARIABLES
    }

    fn observe<'a>(
        &'a self,
        facts: &'a mut CloudFacts,
        retries: kops_agent_net::retry::Retries,
    ) -> BoxFuture<'a, Result<(), MetadataError>> {
        M::observe(facts, retries)
    }

    fn authenticator<'a>(
        &'a self,
        machine: Machine<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Authenticator>, AuthenticationError>> {
        async move {
            let authenticator = IdAuthenticator::of::<M>(M::id_of(machine.facts).unwrap_or_default())?;
            Ok(Box::new(authenticator) as Box<dyn Authenticator>)
        }
        .boxed()
    }

    fn calls_back(&self) -> bool {
        M::PROVEN_BY == ProvenBy::CallBack
    }

    fn for_control_plane<'a>(
        &'a self,
        options: &'a KopsControllerOptions,
        calls: CloudCalls,
        _hosts: &'a Arc<Enrolled>,
    ) -> BoxFuture<'a, Result<Arc<dyn ControlPlane>, ControlPlaneError>> {
        async { Ok(Arc::new(ListedControlPlane::<M>::of(options, calls).await?) as Arc<dyn ControlPlane>) }
            .boxed()
    }
}
