//! A cluster: everything in `cluster-completed.spec`, and what the user wrote of it in `config`.

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
use super::field_warnings::{FieldWarning, warnings};
use super::metadata::{ApiVersion, ObjectMeta, version_of};
use super::respell::{Respelling, moved};
use super::yaml::parse_document;

/// A cluster, in kOps' internal names whatever version the file is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Cluster {
    /// The cluster's name and labels.
    pub metadata: ObjectMeta,
    /// What the cluster shall be.
    pub spec: ClusterSpec,
}

impl Cluster {
    /// Reads a Cluster of v1alpha2 or v1alpha3, and settles the defaults that reading settles
    /// upstream (`SetDefaults_ClusterSpec`); `url` is what errors name.
    ///
    /// # Errors
    /// If it is no YAML, no Cluster, of another version, or a field has the wrong type. Fields are
    /// named as the file spells them.
    pub fn parse(text: &[u8], url: &str) -> Result<Cluster, SpecError> {
        Cluster::from_document(parse_document(text, url)?, url)
    }

    /// As [`Cluster::parse`], from the fields of the file.
    ///
    /// # Errors
    /// As [`Cluster::parse`].
    pub fn from_document(document: Value, url: &str) -> Result<Cluster, SpecError> {
        let mut cluster: Cluster = Cluster::respelled(document, url)?.read()?;
        cluster.spec.set_defaults();
        Ok(cluster)
    }

    /// The fields of a Cluster that nothing reads: misspelled, of another version, or newer than this agent.
    ///
    /// # Errors
    /// If it is no YAML, no Cluster, or of another version.
    pub fn ignored_fields(text: &[u8], url: &str) -> Result<Vec<String>, SpecError> {
        Ok(Cluster::respelled(parse_document(text, url)?, url)?.ignored::<Cluster>())
    }

    /// What is the matter with fields of a Cluster that fail nothing: ignored, dropped or deprecated ones.
    ///
    /// # Errors
    /// If it is no YAML, no Cluster, or of another version.
    pub fn warnings(text: &[u8], url: &str) -> Result<Vec<FieldWarning>, SpecError> {
        let document = parse_document(text, url)?;
        let ignored = Cluster::respelled(document.clone(), url)?.ignored::<Cluster>();
        Ok(warnings(&document, ignored))
    }

    fn respelled(document: Value, url: &str) -> Result<Respelling<'_>, SpecError> {
        let version = version_of(&document, url, "Cluster")?;
        let mut respelling = Respelling::of(document, url);
        match version {
            ApiVersion::V1Alpha2 => v1alpha2::respell(&mut respelling)?,
            ApiVersion::V1Alpha3 => {
                respelling.apply(&[moved("spec.karpenter.logEncoding", "spec.karpenter.logFormat")])?;
            }
        }
        Ok(respelling)
    }

    /// The cloud its machines are in; a label makes it metal whatever the spec says
    /// (upstream: `Cluster.GetCloudProvider`).
    pub fn cloud_provider(&self) -> Option<CloudProvider> {
        if self.metadata.labels.get("alpha.kops.k8s.io/cloud").is_some_and(|cloud| cloud == "metal") {
            return Some(CloudProvider::Metal);
        }
        self.spec.cloud_provider.id()
    }
}

impl CloudProviderSpec {
    /// The cloud that has settings here; none has on metal.
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
