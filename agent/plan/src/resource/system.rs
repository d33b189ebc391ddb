//! All other resources of a machine: packages, accounts, file systems, images, names.

use kops_agent_spec::CloudProvider;
use serde::{Deserialize, Serialize};
use serde_with::{apply, skip_serializing_none};

/// A package of the distribution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// The package's name in the distribution's package manager.
    pub name: String,
}

/// A repository from which the package manager installs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageSource {
    /// Name of the source. Its files under `/etc/apt` have this name too.
    pub name: String,
    /// URL of the signing key.
    pub keyring: String,
    /// Lines of the sources list.
    pub sources: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub name: String,
    pub uid: u32,
    /// Home directory. Empty if the user has no home directory.
    pub home: String,
    pub shell: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    pub gid: u32,
}

/// A file system on a separate device.
#[apply(Vec => #[serde(default, skip_serializing_if = "Vec::is_empty")])]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    pub device: String,
    pub path: String,
    /// Type of the file system. A blank device is formatted with this type.
    pub filesystem: String,
    pub format_options: Vec<String>,
    pub mount_options: Vec<String>,
    /// Whether the machine mounts the file system at every boot, before any program uses it.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub at_boot: bool,
}

fn yes() -> bool {
    true
}

/// A directory that is also mounted at a second path, with separate mount options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BindMount {
    pub source: String,
    /// The second path, at which the directory is also mounted.
    pub path: String,
    /// Mount options (`exec`, `nosuid`, `nodev`).
    pub options: Vec<String>,
    /// Whether the mounts below `source` are also mounted below `path`.
    pub recursive: bool,
}

/// A container image that the node must have before a pod needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// The reference to pull, or the file name of the archive to load.
    pub name: String,
    /// URLs of an archive to load. Empty if the image is pulled from its registry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Lower-case hexadecimal SHA-256 of the archive. Empty for a pulled image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sha256: String,
}

/// A name that `/etc/hosts` must resolve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostsEntry {
    pub hostname: String,
    /// The name's addresses. If the list is empty, `/etc/hosts` must not have the name.
    pub addresses: Vec<String>,
    /// Whether protokube replaces the addresses with addresses that gossip publishes. If so, the agent accepts every address
    /// that `/etc/hosts` has for the name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_replaced_by_gossip: bool,
}

/// A kernel module to load now and at every boot. If a module is built in or missing, this is not a failure.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelModule {
    pub name: String,
    /// The package to install if the kernel lacks the module.
    pub package: Option<String>,
}

/// The IPv6 prefix for the addresses of this node's pods. The machine requests the prefix from the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ipv6Prefix {
    /// The agent always uses the name `prefix`, because a node has at most one resource of this kind.
    pub name: String,
}

impl Ipv6Prefix {
    /// The only cloud from which a machine must request its prefix. Other clouds assign a prefix without a request, or have no prefixes.
    pub const ASKED_OF: CloudProvider = CloudProvider::Aws;
}

/// A registration of this node's service-account issuer with a discovery service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryRegistration {
    pub name: String,
    pub url: String,
    /// Name of the client [`Certificate`](super::Certificate) with which the node registers.
    pub certificate: String,
    /// The object to register, as JSON.
    pub object: String,
}
