//! The clouds: what each says of this machine, and what its API says of others.
//!
//! One file a cloud. Asking a service and making sense of the answers are kept apart.

pub mod authenticate;
pub mod aws;
mod azure;
pub mod callback;
pub mod calls;
mod coalesced;
mod completing;
mod digital_ocean;
pub mod gce;
pub mod hetzner;
mod linode;
mod metadata;
mod openstack;
mod ration;
mod remembered;
pub mod tpm;

use kops_agent_net::retry::Retries;
use kops_agent_plan::facts::CloudFacts;
use kops_agent_plan::spec::CloudProvider;

pub use completing::{complete, complete_for_show};
pub use metadata::MetadataError;
pub use remembered::RememberedFacts;

use metadata::MetadataService;

/// Gets this EC2 instance a range of IPv6 addresses for its pods, if it has none, and says which.
///
/// # Errors
/// If it cannot be asked for, or is not given.
pub async fn assign_ipv6_prefix() -> Result<String, aws::ipv6_prefix::PrefixError> {
    aws::ipv6_prefix::assign(&aws::endpoint_of_environment()?, None, Retries::default()).await
}

/// The region of AWS that `AWS_REGION` names, as kOps has it in the environment, or else that this machine is in.
///
/// # Errors
/// If its metadata service cannot be asked.
pub async fn aws_region() -> Result<String, MetadataError> {
    if let Some(region) = std::env::var("AWS_REGION").ok().filter(|region| !region.is_empty()) {
        return Ok(region);
    }
    Ok(aws::observe(&aws::endpoint_of_environment()?, Retries::default()).await?.region)
}

/// The id of this EC2 instance.
///
/// # Errors
/// If its metadata service cannot be asked.
pub async fn instance_id() -> Result<String, MetadataError> {
    Ok(aws::observe(&aws::endpoint_of_environment()?, Retries::default()).await?.instance_id)
}

/// What the cloud says of this machine.
///
/// # Errors
/// If its metadata service cannot be asked.
pub async fn observe(provider: CloudProvider) -> Result<CloudFacts, MetadataError> {
    let retries = Retries::default();
    let at = |endpoint: &str| MetadataService::new(endpoint, retries);
    let mut facts = CloudFacts::default();
    match provider {
        CloudProvider::Aws => {
            facts.aws = Some(aws::observe(&aws::endpoint_of_environment()?, retries).await?);
        }
        CloudProvider::Azure => facts.azure = Some(azure::observe(&at(azure::ENDPOINT)?).await?),
        CloudProvider::DigitalOcean => {
            facts.digital_ocean = Some(digital_ocean::observe(&at(digital_ocean::ENDPOINT)?).await?);
        }
        CloudProvider::Gce => facts.gce = Some(gce::observe(&at(&gce::endpoint_of_environment())?).await?),
        CloudProvider::Hetzner => facts.hetzner = Some(hetzner::observe(&at(hetzner::ENDPOINT)?).await?),
        CloudProvider::Linode => facts.linode = Some(linode::observe(&at(linode::ENDPOINT)?).await?),
        // OpenStack is asked once it is known that a node is decided by its answer: `complete`.
        CloudProvider::Openstack => {}
        // Nothing that is decided depends on what these say.
        CloudProvider::Metal | CloudProvider::Scaleway => {}
    }
    Ok(facts)
}
