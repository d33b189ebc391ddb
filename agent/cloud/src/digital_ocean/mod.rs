//! DigitalOcean: droplets, which say their number and are called back.

mod droplets;
pub mod facts;

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_net::retry::Retries;
use kops_agent_plan::identity::digital_ocean::Droplet;
use kops_agent_spec::facts::CloudFacts;
use kops_agent_spec::{CloudProvider, KopsControllerOptions};

use crate::Cloud;
use crate::authenticate::{AuthenticationError, Authenticator};
use crate::calls::CloudCalls;
use crate::control_plane::{ControlPlane, ControlPlaneError};
use crate::inventory::{Inventory, ListedControlPlane, ListedVerifier, NumberAuthenticator};
use crate::metadata::{MetadataError, MetadataService};
use crate::tpm::OpenTpm;

/// The droplets of a cluster.
pub type DigitalOceanDroplets = Inventory<Droplet>;
/// Verifies the droplets of a cluster.
pub type DigitalOceanVerifier = ListedVerifier<Droplet>;
/// The droplets of a cluster, as its control plane asks for them.
pub type DigitalOceanControlPlane = ListedControlPlane<Droplet>;

/// DigitalOcean.
pub(crate) struct DigitalOcean;

impl Cloud for DigitalOcean {
    fn provider(&self) -> CloudProvider {
        CloudProvider::DigitalOcean
    }

    fn observe<'a>(&'a self, facts: &'a mut CloudFacts) -> BoxFuture<'a, Result<(), MetadataError>> {
        async {
            let service = MetadataService::new(facts::ENDPOINT, Retries::default())?;
            facts.digital_ocean = Some(facts::observe(&service).await?);
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
            let number = facts.digital_ocean.as_ref().map(|facts| facts.droplet_id.as_str());
            let authenticator = NumberAuthenticator::of::<Droplet>(number.unwrap_or_default())?;
            Ok(Box::new(authenticator) as Box<dyn Authenticator>)
        }
        .boxed()
    }

    fn for_control_plane<'a>(
        &'a self,
        options: &'a KopsControllerOptions,
        calls: CloudCalls,
    ) -> BoxFuture<'a, Result<Arc<dyn ControlPlane>, ControlPlaneError>> {
        async { Ok(Arc::new(DigitalOceanControlPlane::of(options, calls)?) as Arc<dyn ControlPlane>) }.boxed()
    }
}
