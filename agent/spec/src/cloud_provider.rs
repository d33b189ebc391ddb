//! The clouds that a cluster's machines may run in.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A cloud, or `Metal` for machines without a cloud (upstream: `CloudProviderID`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloudProvider {
    Aws,
    Azure,
    DigitalOcean,
    Gce,
    Hetzner,
    Linode,
    Metal,
    Openstack,
    Scaleway,
}

impl CloudProvider {
    pub const ALL: [CloudProvider; 9] = [
        CloudProvider::Aws,
        CloudProvider::Azure,
        CloudProvider::DigitalOcean,
        CloudProvider::Gce,
        CloudProvider::Hetzner,
        CloudProvider::Linode,
        CloudProvider::Metal,
        CloudProvider::Openstack,
        CloudProvider::Scaleway,
    ];

    pub fn id(self) -> &'static str {
        match self {
            CloudProvider::Aws => "aws",
            CloudProvider::Azure => "azure",
            CloudProvider::DigitalOcean => "digitalocean",
            CloudProvider::Gce => "gce",
            CloudProvider::Hetzner => "hetzner",
            CloudProvider::Linode => "linode",
            CloudProvider::Metal => "metal",
            CloudProvider::Openstack => "openstack",
            CloudProvider::Scaleway => "scaleway",
        }
    }

    /// The cloud with this id. `None` if kOps does not know the id.
    pub fn from_id(id: &str) -> Option<CloudProvider> {
        CloudProvider::ALL.into_iter().find(|provider| provider.id() == id)
    }
}

impl fmt::Display for CloudProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl Serialize for CloudProvider {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

impl<'de> Deserialize<'de> for CloudProvider {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CloudProvider, D::Error> {
        let id = String::deserialize(deserializer)?;
        CloudProvider::from_id(&id).ok_or_else(|| {
            let known = CloudProvider::ALL.map(CloudProvider::id).join(", ");
            de::Error::custom(format!("there is no cloud provider {id:?}; the known providers are {known}"))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_cloud_reads_its_own_id() {
        for provider in CloudProvider::ALL {
            let json = serde_json::to_string(&provider).unwrap();
            assert_eq!(serde_json::from_str::<CloudProvider>(&json).unwrap(), provider);
        }
    }

    #[test]
    fn an_unknown_cloud_is_rejected_with_a_list_of_known_ones() {
        let error = serde_json::from_str::<CloudProvider>("\"alibaba\"").unwrap_err().to_string();
        assert!(
            error.contains("there is no cloud provider \"alibaba\"; the known providers are aws, azure"),
            "{error}"
        );
    }
}
