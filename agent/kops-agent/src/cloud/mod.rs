//! What is observed: this machine, and what its cloud says of it.
//!
//! One file a cloud. Asking its metadata service and making sense of the answers are kept apart.

pub mod aws;
mod azure;
pub mod calls;
mod coalesced;
mod completing;
mod digital_ocean;
#[cfg(test)]
pub mod fake_imds;
pub mod gce;
pub mod hetzner;
mod linode;
mod metadata;
mod openstack;
mod ration;
mod remembered;

use std::path::Path;

use anyhow::{Context, Result};
use kops_agent_host::facts::observe_host;
use kops_agent_plan::facts::{CloudFacts, Facts};
use kops_agent_plan::spec::{CloudProvider, parse_yaml};

pub use completing::{complete, complete_for_show};
pub use metadata::MetadataError;
pub use remembered::RememberedFacts;

use crate::retry::Retries;
use metadata::MetadataService;

/// Observes the machine whose files are under `root`, and asks its cloud, if it has one.
///
/// # Errors
/// If the machine is of a kind that kOps does not run on, or its cloud's metadata service cannot be
/// asked.
pub async fn observe(root: &Path, provider: Option<CloudProvider>) -> Result<Facts> {
    let mut facts = observe_host(root).context("observing this machine")?;
    facts.cloud = match provider {
        Some(provider) => observe_cloud(provider).await.context("asking this machine's cloud about it")?,
        None => CloudFacts::default(),
    };
    Ok(facts)
}

/// Gets this EC2 instance a range of IPv6 addresses for its pods, if it has none, and says which.
///
/// # Errors
/// If it cannot be asked for, or is not given.
pub async fn assign_ipv6_prefix() -> Result<String> {
    Ok(aws::ipv6_prefix::assign(&aws::endpoint_of_environment()?, None, Retries::default()).await?)
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

/// The facts that a file holds, as YAML or JSON, in the place of observation.
///
/// # Errors
/// If the file cannot be read; with the field's path, if one has the wrong type or is missing.
pub fn load_facts(file: &Path) -> Result<Facts> {
    let name = file.display().to_string();
    let bytes = std::fs::read(file).with_context(|| format!("reading the facts {name}"))?;
    Ok(parse_yaml(&bytes, &name)?)
}

async fn observe_cloud(provider: CloudProvider) -> Result<CloudFacts, MetadataError> {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use kops_agent_plan::facts::Architecture;
    use kops_agent_plan::spec::SpecError;

    use super::*;

    fn load(text: &str) -> Result<Facts> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("facts.yaml");
        fs::write(&file, text).unwrap();
        load_facts(&file)
    }

    #[test]
    fn facts_are_read_from_yaml_and_from_json() {
        let yaml = "arch: arm64\ndistro: {id: debian, versionID: \"12\"}\nnew: field\n\
                    cloud:\n  aws:\n    instanceID: i-1\n    region: eu-west-1\n    localIPv4: 10.0.0.1\n";
        let facts = load(yaml).unwrap();
        assert_eq!(facts.arch, Architecture::Arm64);
        assert_eq!(facts.cloud.aws.as_ref().unwrap().local_ipv4, "10.0.0.1");
        let json = serde_json::to_string(&facts).unwrap();
        assert_eq!(load(&json).unwrap(), facts);
        assert_eq!(load(&serde_yaml::to_string(&facts).unwrap()).unwrap(), facts);
    }

    #[test]
    fn a_wrong_fact_is_named_with_its_path_and_file() {
        for (text, expected) in [
            ("arch: amd64\ndistro: {id: [debian]}", "field distro.id of "),
            ("arch: riscv64\ndistro: {id: debian}", "field arch of "),
            ("arch: amd64\ndistro: {id: debian}\ncloud: {aws: {instanceID: i-1}}", "region"),
            ("arch: amd64", "distro"),
            ("- arch", "but should be a YAML mapping"),
        ] {
            let error = load(text).unwrap_err();
            assert!(error.is::<SpecError>(), "{error:?}");
            let error = error.to_string();
            assert!(error.contains(expected) && error.contains("facts.yaml"), "{error}");
        }
    }

    #[test]
    fn a_file_of_facts_that_is_not_there_is_named() {
        let error = load_facts(Path::new("/nowhere/facts.yaml")).unwrap_err();
        assert!(format!("{error:#}").starts_with("reading the facts /nowhere/facts.yaml: "), "{error:#}");
    }

    #[tokio::test]
    async fn without_a_cloud_only_the_machine_is_observed() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/os-release"), "ID=debian\nVERSION_ID=12\n").unwrap();
        for provider in [None, Some(CloudProvider::Metal)] {
            let facts = observe(root.path(), provider).await.unwrap();
            assert_eq!((facts.distro.id.as_str(), facts.cloud), ("debian", CloudFacts::default()));
        }
    }
}
