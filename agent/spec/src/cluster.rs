//! A Cluster of the state store: either completed by kOps (`cluster-completed.spec`), or as the user wrote it (`config`).

pub(super) mod addons;
pub(super) mod aws;
pub(super) mod cloud;
pub(super) mod cloud_controller_manager;
pub(super) mod cluster_spec;
mod defaults;
pub(super) mod dns;
pub(super) mod etcd;
pub(super) mod iam;
#[cfg(test)]
mod tests;
mod v1alpha2;

use serde::Deserialize;
use serde_json::Value;

pub use addons::*;
pub use aws::*;
pub use cloud::*;
pub use cloud_controller_manager::*;
pub use cluster_spec::*;
pub use dns::*;
pub use etcd::*;
pub use iam::*;

use super::cloud_provider::CloudProvider;
use super::error::SpecError;
use super::field_warnings::{FieldWarning, OF_CLASSIC_LOAD_BALANCER, OF_GOSSIP, warnings};
use super::kops_release::KopsRelease;
use super::metadata::{ApiVersion, ObjectMeta, version_of};
use super::respell::{Respelling, moved};
use super::yaml::parse_document;

/// A Cluster. Whatever the file's apiVersion, the fields have the names of kOps' internal API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Cluster {
    pub metadata: ObjectMeta,
    pub spec: ClusterSpec,
}

impl Cluster {
    /// Reads a Cluster of v1alpha2 or v1alpha3. Sets the defaults that upstream sets when it reads a Cluster (`SetDefaults_ClusterSpec`).
    /// Errors contain `url`, and the names of fields as in the file.
    pub fn parse(text: &[u8], url: &str) -> Result<Cluster, SpecError> {
        Cluster::from_document(parse_document(text, url)?, url)
    }

    /// Like [`Cluster::parse`], for a document that is already parsed.
    pub fn from_document(document: Value, url: &str) -> Result<Cluster, SpecError> {
        let mut cluster: Cluster = Cluster::respelled(document, url)?.read()?;
        cluster.spec.set_defaults();
        Ok(cluster)
    }

    /// Like [`Cluster::from_document`], for a document that a user wrote. Like kOps, rejects a number or a boolean in place of a string.
    pub fn from_manifest(document: Value, url: &str) -> Result<Cluster, SpecError> {
        let mut cluster: Cluster = Cluster::respelled(document, url)?.read_manifest()?;
        cluster.spec.set_defaults();
        Ok(cluster)
    }

    /// The fields of a Cluster that the agent does not read. They are misspelled, of another API version, or newer than this agent.
    pub fn ignored_fields(text: &[u8], url: &str) -> Result<Vec<String>, SpecError> {
        Ok(Cluster::respelled(parse_document(text, url)?, url)?.ignored::<Cluster>())
    }

    /// Warnings about fields of a Cluster that cause no error: ignored, removed and deprecated fields. A field that newer kOps releases
    /// have removed causes no warning if `release` still uses the field in this cluster.
    pub fn warnings(text: &[u8], url: &str, release: KopsRelease) -> Result<Vec<FieldWarning>, SpecError> {
        Cluster::warnings_of(&parse_document(text, url)?, url, release)
    }

    /// Like [`Cluster::warnings`], for a document that is already parsed.
    pub fn warnings_of(
        document: &Value,
        url: &str,
        release: KopsRelease,
    ) -> Result<Vec<FieldWarning>, SpecError> {
        let cluster = Cluster::respelled(document.clone(), url)?;
        let is = |field: &str, value: &str| cluster.get(field).is_some_and(|found| found == value);
        let name = document["metadata"]["name"].as_str().unwrap_or_default();
        let has_gossip =
            release.has_gossip() && is_gossip_name(name) && !is("spec.networking.topology.dns", "None");
        let may_be_classic =
            release.has_classic_load_balancers() && !is("spec.api.loadBalancer.class", "Network");
        let is_used = |warning: &FieldWarning| match warning.problem {
            OF_GOSSIP => has_gossip,
            OF_CLASSIC_LOAD_BALANCER => may_be_classic,
            _ => false,
        };
        let mut found = warnings(document, cluster.ignored::<Cluster>());
        found.retain(|warning| !is_used(warning));
        Ok(found)
    }

    fn respelled(document: Value, url: &str) -> Result<Respelling<'_>, SpecError> {
        let version = version_of(&document, url, "Cluster")?;
        let mut respelling = Respelling::new(document, url);
        match version {
            ApiVersion::V1Alpha2 => v1alpha2::respell(&mut respelling)?,
            ApiVersion::V1Alpha3 => {
                respelling.apply(&[moved("spec.karpenter.logEncoding", "spec.karpenter.logFormat")])?;
            }
        }
        Ok(respelling)
    }

    /// The cloud in which the machines run. The label `alpha.kops.k8s.io/cloud: metal` overrides the spec (upstream:
    /// `Cluster.GetCloudProvider`).
    pub fn cloud_provider(&self) -> Option<CloudProvider> {
        if self.metadata.labels.get("alpha.kops.k8s.io/cloud").is_some_and(|cloud| cloud == "metal") {
            return Some(CloudProvider::Metal);
        }
        self.spec.cloud_provider.id()
    }
}

impl CloudProviderSpec {
    /// The cloud whose field is set. `None` if no field is set.
    pub fn id(&self) -> Option<CloudProvider> {
        let clouds = [
            (self.aws.is_some(), CloudProvider::Aws),
            (self.azure.is_some(), CloudProvider::Azure),
            (self.r#do.is_some(), CloudProvider::DigitalOcean),
            (self.gce.is_some(), CloudProvider::Gce),
            (self.hetzner.is_some(), CloudProvider::Hetzner),
            (self.openstack.is_some(), CloudProvider::Openstack),
            (self.scaleway.is_some(), CloudProvider::Scaleway),
            (self.linode.is_some(), CloudProvider::Linode),
        ];
        clouds.into_iter().find_map(|(there, cloud)| there.then_some(cloud))
    }
}
