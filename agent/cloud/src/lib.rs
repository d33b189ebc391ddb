//! The clouds: facts about this machine, and requests to their APIs about other machines.
//!
//! A cloud is a folder. `facts` asks the metadata service. `authenticate` makes the proof of a machine. An API client requests other
//! machines. `verify` judges proofs, and `identify` judges Nodes. If one list has all machines by their ids, a cloud only describes this
//! list ([`inventory::Listed`]), and [`inventory`] has the rest. `CLOUD.rs` combines these parts to a [`Cloud`], and [`for_provider`]
//! selects the cloud of a provider. Other code distinguishes providers only in `agent/spec` and `agent/plan`, where kOps' formats and
//! decisions differ by cloud. All API requests use [`api`].

pub mod api;
pub mod authenticate;
pub mod aws;
pub mod azure;
pub mod callback;
pub mod calls;
mod cloud;
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

use kops_agent_net::retry::Retries;
use kops_agent_spec::CloudProvider;
use kops_agent_spec::facts::CloudFacts;

pub use cloud::{Cloud, Machine, WantedFacts};
pub use control_plane::{ControlPlane, ControlPlaneError, NoPodRanges, NotIdentified};
pub use error::CloudError;
pub use metadata::MetadataError;
pub use remembered::RememberedFacts;

pub fn for_provider(provider: CloudProvider) -> &'static dyn Cloud {
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

/// The environment variables that the APIs of all clouds need ([`Cloud::variables`]).
pub fn variables() -> impl Iterator<Item = &'static [&'static str]> {
    CloudProvider::ALL.into_iter().flat_map(|provider| for_provider(provider).variables().iter().copied())
}

/// Asks the metadata service of the cloud for facts about this machine.
pub async fn observe(provider: CloudProvider) -> Result<CloudFacts, MetadataError> {
    observe_within(provider, Retries::default()).await
}

/// Like `observe`, with the given retries. The facts stay empty for a cloud whose `Cloud::observe` asks nothing.
pub async fn observe_within(provider: CloudProvider, retries: Retries) -> Result<CloudFacts, MetadataError> {
    let mut facts = CloudFacts::default();
    for_provider(provider).observe(&mut facts, retries).await?;
    Ok(facts)
}

/// The prefix of a URL that names an item of this machine's metadata.
pub const METADATA_SCHEME: &str = "metadata://";

/// Reads the item of this machine's metadata at a URL `metadata://CLOUD/PATH`. A missing item is an error.
pub async fn read_metadata(url: &str, retries: Retries) -> Result<String, CloudError> {
    let wrong = |problem| CloudError::NoMetadata { url: url.to_owned(), problem };
    let rest = url.strip_prefix(METADATA_SCHEME).unwrap_or_default();
    let (name, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let provider = CloudProvider::from_id(name).ok_or_else(|| {
        wrong("names no cloud; write metadata://CLOUD/PATH, with CLOUD as in the boot config's CloudProvider")
    })?;
    let item = for_provider(provider).metadata(path, retries).await?;
    item.ok_or_else(|| wrong("the metadata service of this machine does not have it (404)"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_provider_has_its_own_cloud() {
        for provider in CloudProvider::ALL {
            assert_eq!(for_provider(provider).provider(), provider);
        }
    }

    #[test]
    fn clouds_with_plain_ids_are_called_back_as_in_upstream() {
        use CloudProvider::{Azure, DigitalOcean, Hetzner, Linode, Scaleway};
        let called_back =
            CloudProvider::ALL.into_iter().filter(|provider| for_provider(*provider).calls_back());
        assert_eq!(called_back.collect::<Vec<_>>(), [Azure, DigitalOcean, Hetzner, Linode, Scaleway]);
    }

    #[tokio::test]
    async fn an_unsupported_request_is_an_error_that_names_the_cloud() {
        let error = for_provider(CloudProvider::Gce).assign_ipv6_prefix().await.unwrap_err().to_string();
        assert_eq!(error, "kops-agent cannot request a range of IPv6 addresses on gce");
    }
}
