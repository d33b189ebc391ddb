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
mod error;
pub mod gce;
pub mod hetzner;
pub mod hosts;
pub mod inventory;
pub mod linode;
mod metadata;
pub mod metal;
pub mod openstack;
mod rate_limiter;
mod remembered;
pub mod scaleway;
mod singleflight;
mod token_cache;
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
pub use error::CloudError;
pub use metadata::MetadataError;
pub use remembered::RememberedFacts;

use authenticate::{AuthenticationError, Authenticator};
use calls::CloudCalls;
use hosts::Enrolled;
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

    /// The variables of the environment that it takes to ask its API: in groups, each of which counts where its first variable is
    /// set. By default there is none.
    fn variables(&self) -> &'static [&'static [&'static str]] {
        &[]
    }

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
    ) -> BoxFuture<'a, Result<(), CloudError>> {
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

    /// Gets this machine a range of IPv6 addresses for its pods, if it has none, and says which.
    ///
    /// # Errors
    /// If it cannot be asked for, or is not given.
    fn assign_ipv6_prefix(&self) -> BoxFuture<'_, Result<String, CloudError>> {
        not_offered(self.provider(), "range of IPv6 addresses")
    }

    /// The id of this machine, by which a group may hold it until it is ready.
    ///
    /// # Errors
    /// If the metadata service cannot be asked.
    fn instance_id(&self) -> BoxFuture<'_, Result<String, CloudError>> {
        not_offered(self.provider(), "lifecycle hook")
    }

    /// Tells the group that holds a machine until it is ready that it is. `uptime` is for how long it has run.
    ///
    /// # Errors
    /// If the group could not be told before the retries ended.
    fn complete_lifecycle_action<'a>(
        &'a self,
        action: &'a LifecycleAction,
        uptime: Duration,
    ) -> BoxFuture<'a, Result<Completion, CloudError>> {
        let _ = (action, uptime);
        not_offered(self.provider(), "lifecycle hook")
    }

    /// What proves to kops-controller which machine this is.
    ///
    /// # Errors
    /// If it cannot be set up.
    fn authenticator<'a>(
        &'a self,
        machine: Machine<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Authenticator>, AuthenticationError>>;

    /// Whether kops-controller calls a machine back before it believes it, which has to listen for that (upstream:
    /// `pkg/apis/kops/model/features.go`).
    fn calls_back(&self) -> bool {
        false
    }

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

/// The answer of a cloud whose machines have no such thing.
fn not_offered<T: Send + 'static>(
    provider: CloudProvider,
    what: &'static str,
) -> BoxFuture<'static, Result<T, CloudError>> {
    async move { Err(CloudError::NotOffered { provider, what }) }.boxed()
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

/// The variables of the environment that it takes to ask the API of any cloud ([`Cloud::variables`]).
pub fn variables() -> impl Iterator<Item = &'static [&'static str]> {
    CloudProvider::ALL.into_iter().flat_map(|provider| of(provider).variables().iter().copied())
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_provider_has_its_own_cloud() {
        for provider in CloudProvider::ALL {
            assert_eq!(of(provider).provider(), provider);
        }
    }

    #[test]
    fn machines_that_say_no_more_than_their_ids_are_called_back_as_upstreams_are() {
        use CloudProvider::{Azure, DigitalOcean, Hetzner, Linode, Scaleway};
        let called_back = CloudProvider::ALL.into_iter().filter(|provider| of(*provider).calls_back());
        assert_eq!(called_back.collect::<Vec<_>>(), [Azure, DigitalOcean, Hetzner, Linode, Scaleway]);
    }

    #[tokio::test]
    async fn what_a_cloud_has_not_is_refused_by_name() {
        let error = of(CloudProvider::Gce).assign_ipv6_prefix().await.unwrap_err().to_string();
        assert_eq!(error, "machines of gce have no range of IPv6 addresses to ask their cloud for");
    }
}
