//! Hetzner Cloud: servers, which say their number and are called back.

pub(crate) mod authenticate;
pub(crate) mod facts;
pub mod identify;
pub mod servers;
pub mod verify;

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_net::retry::Retries;
use kops_agent_spec::facts::CloudFacts;
use kops_agent_spec::{CloudProvider, KopsControllerOptions};

use crate::Cloud;
use crate::authenticate::{AuthenticationError, Authenticator};
use crate::calls::CloudCalls;
use crate::control_plane::{ControlPlane, ControlPlaneError};
use crate::metadata::{MetadataError, MetadataService};
use crate::tpm::OpenTpm;
use authenticate::HetznerAuthenticator;
use identify::HetznerControlPlane;

/// Hetzner Cloud.
pub(crate) struct Hetzner;

impl Cloud for Hetzner {
    fn provider(&self) -> CloudProvider {
        CloudProvider::Hetzner
    }

    fn observe<'a>(
        &'a self,
        facts: &'a mut CloudFacts,
        retries: Retries,
    ) -> BoxFuture<'a, Result<(), MetadataError>> {
        async move {
            let service = MetadataService::new(facts::ENDPOINT, retries)?;
            facts.hetzner = Some(facts::observe(&service).await?);
            Ok(())
        }
        .boxed()
    }

    fn authenticator<'a>(
        &'a self,
        facts: &'a CloudFacts,
        _tpm: &'a Arc<dyn OpenTpm>,
    ) -> BoxFuture<'a, Result<Box<dyn Authenticator>, AuthenticationError>> {
        async {
            let authenticator = HetznerAuthenticator::of(facts.hetzner.as_ref())?;
            Ok(Box::new(authenticator) as Box<dyn Authenticator>)
        }
        .boxed()
    }

    fn for_control_plane<'a>(
        &'a self,
        options: &'a KopsControllerOptions,
        calls: CloudCalls,
    ) -> BoxFuture<'a, Result<Arc<dyn ControlPlane>, ControlPlaneError>> {
        async { Ok(Arc::new(HetznerControlPlane::of(options, calls)?) as Arc<dyn ControlPlane>) }.boxed()
    }
}
