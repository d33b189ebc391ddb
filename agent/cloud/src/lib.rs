//! The clouds: what each says of this machine, and what its API says of others.
//!
//! A cloud is a folder: `facts` asks the metadata service, `authenticate` makes a machine's proof, an API client asks for other
//! machines, `verify` judges proofs and `identify` Nodes by it. Where one list has all machines by their ids, a cloud is
//! what it lists ([`inventory::Listed`]), and the rest is [`inventory`]'s. Its `mod.rs` puts them together as a [`Cloud`], and [`of`]
//! names it. Nothing else in the program chooses by the provider. Every API is asked by [`api`].

pub mod api;
pub mod authenticate;
pub mod aws;
pub mod azure;
pub mod callback;
pub mod calls;
mod control_plane;
pub mod digital_ocean;
pub mod gce;
pub mod hetzner;
pub mod inventory;
pub mod linode;
mod metadata;
pub mod metal;
pub mod openstack;
mod rate_limiter;
mod remembered;
pub mod scaleway;
mod singleflight;
pub mod tpm;
pub mod verify;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_net::retry::Retries;
use kops_agent_plan::lifecycle_action::{Completion, LifecycleAction};
use kops_agent_plan::resolve::Inputs;
use kops_agent_spec::facts::{CloudFacts, Facts};
use kops_agent_spec::{CloudProvider, KopsControllerOptions};

pub use control_plane::{ControlPlane, ControlPlaneError, NoPodRanges, NotIdentified};
pub use metadata::MetadataError;
pub use remembered::RememberedFacts;

use api::ApiError;
use authenticate::{AuthenticationError, Authenticator};
use aws::autoscaling;
use aws::instance_types::InstanceTypeError;
use aws::ipv6_prefix::{self, PrefixError};
use calls::CloudCalls;
use metal::hosts::Enrolled;
use tpm::OpenTpm;

/// For an answer that a node can do without.
const WITHOUT_WAITING: Retries = Retries {
    deadline: Duration::from_secs(15),
    attempt: Duration::from_secs(5),
    first_pause: Duration::from_millis(500),
    longest_pause: Duration::from_secs(4),
};

/// A cloud. What it does not define is nothing, for there is nothing to ask.
pub trait Cloud: Send + Sync {
    /// Which cloud it is.
    fn provider(&self) -> CloudProvider;

    /// Asks the metadata service about this machine, and writes the answers into the cloud's part of the facts. By default
    /// nothing is asked: nothing that is decided depends on it.
    ///
    /// # Errors
    /// If the service cannot be asked, or is another cloud's.
    fn observe<'a>(
        &'a self,
        facts: &'a mut CloudFacts,
        retries: Retries,
    ) -> BoxFuture<'a, Result<(), MetadataError>> {
        let _ = (facts, retries);
        async { Ok(()) }.boxed()
    }

    /// Adds to the facts what this node's configuration makes it depend on besides, and what costs more than a question to the
    /// metadata service. What an earlier run was told is not asked for again.
    ///
    /// # Errors
    /// If the node cannot be decided without it, and the cloud does not tell.
    fn complete<'a>(
        &'a self,
        inputs: &'a mut Inputs,
        remembered: &'a RememberedFacts,
    ) -> BoxFuture<'a, Result<(), InstanceTypeError>> {
        let _ = (inputs, remembered);
        async { Ok(()) }.boxed()
    }

    /// Adds to the facts everything that the cloud tells, whatever depends on it. What it does not tell is left out with a
    /// warning.
    fn complete_for_show<'a>(
        &'a self,
        facts: &'a mut Facts,
        remembered: &'a RememberedFacts,
    ) -> BoxFuture<'a, ()> {
        let _ = (facts, remembered);
        async {}.boxed()
    }

    /// What proves to kops-controller which machine this is.
    ///
    /// # Errors
    /// If it cannot be set up.
    fn authenticator<'a>(
        &'a self,
        machine: Machine<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Authenticator>, AuthenticationError>>;

    /// The machines of the cluster that a configuration of kops-controller is for. Questions to the API are counted in `calls`.
    /// `hosts` are those that were enrolled at the API server.
    ///
    /// # Errors
    /// If the configuration or the environment is wrong, or a client cannot be set up.
    fn for_control_plane<'a>(
        &'a self,
        options: &'a KopsControllerOptions,
        calls: CloudCalls,
        hosts: &'a Arc<Enrolled>,
    ) -> BoxFuture<'a, Result<Arc<dyn ControlPlane>, ControlPlaneError>>;
}

/// A machine that is to prove itself.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    /// What its cloud says of it.
    pub facts: &'a CloudFacts,
    /// Its TPM.
    pub tpm: &'a Arc<dyn OpenTpm>,
    /// What it is called (`uname -n`).
    pub hostname: &'a str,
    /// Where its files are.
    pub root: &'a Path,
}

/// The cloud of a provider.
pub fn of(provider: CloudProvider) -> &'static dyn Cloud {
    match provider {
        CloudProvider::Aws => &aws::Aws,
        CloudProvider::Azure => &azure::Azure,
        CloudProvider::DigitalOcean => &digital_ocean::CLOUD,
        CloudProvider::Gce => &gce::Gce,
        CloudProvider::Hetzner => &hetzner::CLOUD,
        CloudProvider::Linode => &linode::CLOUD,
        CloudProvider::Metal => &metal::Metal,
        CloudProvider::Openstack => &openstack::Openstack,
        CloudProvider::Scaleway => &scaleway::CLOUD,
    }
}

/// What the cloud says of this machine.
///
/// # Errors
/// If its metadata service cannot be asked.
pub async fn observe(provider: CloudProvider) -> Result<CloudFacts, MetadataError> {
    observe_within(provider, Retries::default()).await
}

/// The same with another deadline. Facts with nothing in them are those of a cloud that is not asked.
///
/// # Errors
/// If its metadata service cannot be asked.
pub async fn observe_within(provider: CloudProvider, retries: Retries) -> Result<CloudFacts, MetadataError> {
    let mut facts = CloudFacts::default();
    of(provider).observe(&mut facts, retries).await?;
    Ok(facts)
}

/// Gets this instance a range of IPv6 addresses for its pods, if it has none, and says which. Only EC2 gives any.
///
/// # Errors
/// If it cannot be asked for, or is not given.
pub async fn assign_ipv6_prefix() -> Result<String, PrefixError> {
    ipv6_prefix::assign(&aws::facts::endpoint_of_environment()?, None, Retries::default()).await
}

/// The id of this instance, which is one of a group that may hold it: EC2's.
///
/// # Errors
/// If its metadata service cannot be asked.
pub async fn instance_id() -> Result<String, MetadataError> {
    let endpoint = aws::facts::endpoint_of_environment()?;
    Ok(aws::facts::observe(&endpoint, Retries::default()).await?.instance_id)
}

/// Tells the group that holds an instance that this is ready. `uptime` is for how long it has run.
///
/// # Errors
/// If the group could not be told before the retries ended.
pub async fn complete_lifecycle_action(
    action: &LifecycleAction,
    uptime: Duration,
) -> Result<Completion, ApiError> {
    autoscaling::complete(action, uptime, autoscaling::RETRIES).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_provider_has_its_own_cloud() {
        for provider in CloudProvider::ALL {
            assert_eq!(of(provider).provider(), provider);
        }
    }
}
