//! What else a machine has: packages, accounts, file systems, images, names.

use kops_agent_spec::CloudProvider;
use serde::{Deserialize, Serialize};
use serde_with::{apply, skip_serializing_none};

/// A package of the distribution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// The package's name, as the distribution's package manager knows it.
    pub name: String,
}

/// A repository from which the package manager installs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageSource {
    /// Name of the source; also of its files under `/etc/apt`.
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
    /// Home directory; empty for none.
    pub home: String,
    pub shell: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    pub gid: u32,
}

/// A file system on a device of its own.
#[apply(Vec => #[serde(default, skip_serializing_if = "Vec::is_empty")])]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    pub device: String,
    /// Where it is mounted.
    pub path: String,
    /// File system to make on a blank device, and to mount.
    pub filesystem: String,
    /// Options for making the file system.
    pub format_options: Vec<String>,
    pub mount_options: Vec<String>,
    /// Whether it is mounted whenever the machine boots, before anything uses it.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub at_boot: bool,
}

fn yes() -> bool {
    true
}

/// A directory shown at a second place, with options of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BindMount {
    pub source: String,
    /// Where it is shown.
    pub path: String,
    /// Mount options (`exec`, `nosuid`, `nodev`).
    pub options: Vec<String>,
    /// Whether mounts below come along.
    pub recursive: bool,
}

/// A container image to have on the node before anything needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// The reference to pull, or the file name of the archive to load.
    pub name: String,
    /// URLs of an archive to load; empty where the image is pulled from its registry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Lower-case hexadecimal SHA-256 of the archive; empty for a pulled image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sha256: String,
}

/// A name that `/etc/hosts` must resolve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostsEntry {
    pub hostname: String,
    /// Its addresses; none if the name must not be there.
    pub addresses: Vec<String>,
}

/// A kernel module to load now and at every boot. One that the kernel has built in, or lacks, is no failure.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelModule {
    pub name: String,
    /// The package to install where the kernel lacks the module.
    pub package: Option<String>,
}

/// The IPv6 prefix from which this node's pods get their addresses, asked of the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ipv6Prefix {
    /// The resource's name; there is one on a node.
    pub name: String,
}

impl Ipv6Prefix {
    /// The cloud that machines ask for theirs. Others give one unasked, or none.
    pub const ASKED_OF: CloudProvider = CloudProvider::Aws;
}

/// A registration of this node's service-account issuer with a discovery service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryRegistration {
    pub name: String,
    pub url: String,
    /// Name of the client [`Certificate`](super::Certificate) that registers.
    pub certificate: String,
    /// The object to register, as JSON.
    pub object: String,
}
