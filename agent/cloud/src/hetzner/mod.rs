//! Hetzner Cloud: servers, which say their number and are called back.

mod facts;
mod servers;

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_net::retry::Retries;
use kops_agent_plan::identity::hetzner::HetznerServer;
use kops_agent_spec::facts::CloudFacts;
use kops_agent_spec::{CloudProvider, KopsControllerOptions};

use crate::Cloud;
use crate::authenticate::{AuthenticationError, Authenticator};
use crate::calls::CloudCalls;
use crate::control_plane::{ControlPlane, ControlPlaneError};
use crate::inventory::{Inventory, ListedControlPlane, ListedVerifier, NumberAuthenticator};
use crate::metadata::{MetadataError, MetadataService};
use crate::tpm::OpenTpm;

/// The servers of a cluster.
pub type HetznerServers = Inventory<HetznerServer>;
/// Verifies the servers of a cluster.
pub type HetznerVerifier = ListedVerifier<HetznerServer>;
/// The servers of a cluster, as its control plane asks for them.
pub type HetznerControlPlane = ListedControlPlane<HetznerServer>;

/// Hetzner Cloud.
pub(crate) struct Hetzner;

impl Cloud for Hetzner {
    fn provider(&self) -> CloudProvider {
        CloudProvider::Hetzner
    }

    fn observe<'a>(&'a self, facts: &'a mut CloudFacts) -> BoxFuture<'a, Result<(), MetadataError>> {
        async {
            let service = MetadataService::new(facts::ENDPOINT, Retries::default())?;
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
            let number = facts.hetzner.as_ref().map(|facts| facts.instance_id.as_str());
            let authenticator = NumberAuthenticator::of::<HetznerServer>(number.unwrap_or_default())?;
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
