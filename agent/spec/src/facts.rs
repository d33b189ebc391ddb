//! Facts about this machine and its cloud. A decision depends only on the facts and on the state store.
//!
//! A `Facts` file and a store are a complete test or support case. `kops-agent facts` prints such a file. With `--facts FILE`, the agent
//! uses the file instead of observing the machine.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_with::{apply, skip_serializing_none};

use super::cloud_provider::CloudProvider;
use super::go_yaml::is_zero;

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    pub arch: Architecture,
    pub distro: Distro,
    /// The kernel's name for this host.
    #[serde(default)]
    pub hostname: String,
    /// Addresses of this host's name in `/etc/hosts`, without loopback addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hostname_addresses: Vec<String>,
    /// The machine's users that can log in, except root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub login_users: Vec<LoginUser>,
    /// Network interfaces, in the kernel's order.
    #[serde(default)]
    pub interfaces: Vec<Interface>,
    /// Whether `/run/systemd/resolve/resolv.conf` exists. systemd-resolved writes this file. The file lists the name servers, but not the
    /// loopback stub of systemd-resolved.
    #[serde(default)]
    pub systemd_resolved: bool,
    /// Kernel release (`uname -r`).
    pub kernel: Option<String>,
    /// Memory that the kernel can use, in bytes.
    pub memory_bytes: Option<u64>,
    /// Number of processors that the kernel can use.
    pub processors: Option<u32>,
    /// Name servers of `/etc/resolv.conf`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// Whether the BPF file system is mounted at `/sys/fs/bpf` without a mount unit. Since version 238, systemd itself mounts it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bpf_mounted_by_systemd: bool,
    /// Text of `/etc/fstab`. `None` if the file is missing.
    pub fstab: Option<String>,
    /// Whether the machine has NVIDIA's driver and `/usr/bin/nvidia-container-runtime`, which gives containers access to the driver. `None`
    /// if the agent did not check.
    pub nvidia_runtime: Option<bool>,
    /// The mode of SELinux on this machine. `None` if the kernel has no SELinux.
    pub selinux: Option<Selinux>,
    #[serde(default)]
    pub cloud: CloudFacts,
}

impl Facts {
    /// A text that identifies the machine. The text has the cloud and the machine's name in that cloud. If the cloud gives no name, the
    /// text has the host name instead. For an instance in a warm pool, the text ends in `, in a warm pool`. The agent compares this text
    /// with the text in its record. So the agent detects the record of another machine, for example in an image of a node's disk.
    pub fn machine(&self) -> String {
        let CloudFacts { aws, gce, hetzner, openstack: _, azure, digital_ocean: _, linode, scaleway: _ } =
            &self.cloud;
        if let Some(aws) = aws {
            let is_warming = aws.target_lifecycle_state.starts_with(WARMED);
            return format!("aws {}{}", aws.instance_id, if is_warming { ", in a warm pool" } else { "" });
        }
        let named = [
            gce.as_ref().map(|gce| format!("gce {} {} {} {}", gce.project, gce.zone, gce.name, gce.hostname)),
            hetzner.as_ref().map(|hetzner| format!("hetzner {}", hetzner.instance_id)),
            azure.as_ref().map(|azure| format!("azure {}", azure.resource_id)),
            linode.as_ref().map(|linode| format!("linode {}", linode.label)),
        ];
        named.into_iter().flatten().next().unwrap_or_else(|| format!("host {}", self.hostname))
    }
}

/// The cloud in a text that [`Facts::machine`] returned. `None` if the text has only a host name.
pub fn cloud_of_machine(machine: &str) -> Option<CloudProvider> {
    machine.split(' ').next().and_then(CloudProvider::from_id)
}

/// The prefix of an instance's target lifecycle state while the instance is prepared for a warm pool.
pub const WARMED: &str = "Warmed:";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// 64-bit x86. The kernel's name is `x86_64`.
    #[default]
    Amd64,
    /// 64-bit Arm. The kernel's name is `aarch64`.
    Arm64,
}

impl Architecture {
    /// Go's name of the architecture, which URLs of downloads and nodeupconfig use.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Amd64 => "amd64",
            Architecture::Arm64 => "arm64",
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The distribution, from `/etc/os-release`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Distro {
    /// The value of `ID` in `/etc/os-release`, such as `ubuntu`.
    pub id: String,
    /// The value of `VERSION_ID` in `/etc/os-release`, such as `24.04`.
    #[serde(rename = "versionID", default)]
    pub version_id: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginUser {
    pub name: String,
    /// Name of the primary group.
    pub group: String,
    pub home: String,
}

#[apply(_ => #[serde(default, skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// The kernel's name for the interface.
    #[serde_with(skip_apply)]
    pub name: String,
    /// The hardware address. `None` if the interface has no hardware address.
    pub mac: Option<String>,
    /// Addresses with prefix lengths.
    pub addresses: Vec<String>,
    /// Whether the interface has no hardware device (no `/sys/class/net/NAME/device`).
    #[serde(rename = "virtual")]
    pub is_virtual: bool,
}

/// Whether SELinux denies forbidden accesses or only logs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Selinux {
    Enforcing,
    Permissive,
}

/// Facts from the cloud's metadata service. At most one field is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudFacts {
    pub aws: Option<AwsFacts>,
    pub gce: Option<GceFacts>,
    pub hetzner: Option<HetznerFacts>,
    pub openstack: Option<OpenstackFacts>,
    pub azure: Option<AzureFacts>,
    pub digital_ocean: Option<DigitalOceanFacts>,
    pub linode: Option<LinodeFacts>,
    pub scaleway: Option<ScalewayFacts>,
}

impl CloudFacts {
    /// The range of IPv6 addresses that the cloud has assigned to this machine for its pods. Empty if the cloud has assigned no range.
    pub fn ipv6_prefix(&self) -> &str {
        self.aws.as_ref().map_or("", |aws| &aws.ipv6_prefix)
    }

    /// The type of this instance. `None` on clouds where no setting depends on the type.
    pub fn instance_type(&self) -> Option<&str> {
        self.aws.as_ref().map(|aws| aws.instance_type.as_str())
    }
}

/// An EC2 instance. The facts come from the metadata service. Only the description of the instance type comes from EC2's API.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AwsFacts {
    /// From the metadata: `instance-id`.
    #[serde(rename = "instanceID")]
    pub instance_id: String,
    /// From the metadata: `instance-type`.
    #[serde(default)]
    pub instance_type: String,
    /// From the metadata: `placement/region`.
    pub region: String,
    /// From the metadata: `placement/availability-zone`.
    #[serde(default)]
    pub availability_zone: String,
    /// From the metadata: `local-ipv4`. Empty on an IPv6-only subnet.
    #[serde(rename = "localIPv4", default)]
    pub local_ipv4: String,
    /// From the metadata: `public-ipv4`. Empty if the instance has no public address.
    #[serde(rename = "publicIPv4", default)]
    pub public_ipv4: String,
    /// From the metadata: `ipv6`. Empty if the instance has no IPv6 address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ipv6: String,
    /// From the metadata: `local-hostname`.
    #[serde(default)]
    pub local_hostname: String,
    /// From the metadata: `mac` of the primary interface.
    #[serde(default)]
    pub mac: String,
    /// From the metadata: `network/interfaces/macs/<mac>/ipv6-prefix` of the primary interface. Empty if the interface has no prefix yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ipv6_prefix: String,
    /// Limits of the instance type, from EC2's DescribeInstanceTypes. `None` if the agent did not ask EC2, or if the response lacks the
    /// limits. The agent asks EC2 only if the node's configuration depends on the type (`Inputs::wants_instance_type` of `agent/plan`).
    pub network_interfaces: Option<NetworkInterfaceLimits>,
    /// Whether the instance type has a GPU. `None` if the agent did not ask EC2, or if the response does not say.
    pub gpu: Option<bool>,
    /// From the metadata: `autoscaling/target-lifecycle-state`. Empty outside of an Auto Scaling group.
    #[serde(default)]
    pub target_lifecycle_state: String,
}

/// EC2's description of an instance type. It is equal in every region, and does not change while AWS offers the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceType {
    pub network_interfaces: NetworkInterfaceLimits,
    pub gpu: bool,
}

/// How many network interfaces and addresses an instance type can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterfaceLimits {
    pub max: u32,
    #[serde(rename = "ipv4PerInterface")]
    pub ipv4_per_interface: u32,
}

impl AwsFacts {
    /// Whether all values of EC2's description of the instance type are known.
    pub fn knows_instance_type(&self) -> bool {
        self.network_interfaces.is_some() && self.gpu.is_some()
    }

    /// Adds EC2's description of the instance type. Values that a facts file has set stay unchanged.
    pub fn complete(&mut self, instance_type: InstanceType) {
        self.network_interfaces.get_or_insert(instance_type.network_interfaces);
        self.gpu.get_or_insert(instance_type.gpu);
    }
}

/// A GCE instance, from its metadata server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GceFacts {
    /// From the metadata: `instance/hostname`, fully qualified.
    pub hostname: String,
    /// From the metadata: `project/project-id`.
    #[serde(default)]
    pub project: String,
    /// From the metadata: the last part of `instance/zone`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// From the metadata: `instance/name`, which is the instance's name in Compute Engine's API.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// A Hetzner Cloud server, from its metadata service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HetznerFacts {
    /// From the metadata: `instance-id`.
    #[serde(rename = "instanceID")]
    pub instance_id: String,
    /// The server's address in the private network with interface number 1. Empty if the server has no such network.
    #[serde(rename = "privateIPv4", default)]
    pub private_ipv4: String,
}

/// An Azure virtual machine, from its instance metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AzureFacts {
    /// From the metadata: `compute/resourceId`.
    #[serde(rename = "resourceID")]
    pub resource_id: String,
}

/// A DigitalOcean droplet, from its metadata service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DigitalOceanFacts {
    /// From the metadata: `id`.
    #[serde(rename = "dropletID", default, skip_serializing_if = "String::is_empty")]
    pub droplet_id: String,
    /// From the metadata: `interfaces/private/0/ipv4/address`.
    #[serde(rename = "privateIPv4")]
    pub private_ipv4: String,
}

/// A Linode instance, from its metadata service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinodeFacts {
    /// From the metadata: `instance.label`.
    pub label: String,
    /// From the metadata: `instance.id`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
}

/// A Scaleway server, from its metadata service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayFacts {
    /// From the metadata: `id`.
    #[serde(rename = "serverID")]
    pub server_id: String,
    /// From the metadata: `location.zone_id`.
    #[serde(default)]
    pub zone: String,
}

/// An OpenStack server, from its metadata. The agent reads the metadata only on a machine with an API server (`Inputs::wants_address` of
/// `agent/plan`), or to prove the machine's identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenstackFacts {
    /// From the metadata: `uuid` of `meta_data.json`. Empty if the agent did not request it.
    #[serde(rename = "serverID", default, skip_serializing_if = "String::is_empty")]
    pub server_id: String,
    /// From the EC2-compatible metadata: `local-ipv4`. Empty if the server has no such address.
    #[serde(rename = "localIPv4", default)]
    pub local_ipv4: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_of_a_machine_begins_with_its_cloud() {
        let aws = CloudFacts { aws: Some(AwsFacts::default()), ..CloudFacts::default() };
        let gce = CloudFacts { gce: Some(GceFacts::default()), ..CloudFacts::default() };
        let cloud = |cloud: CloudFacts| cloud_of_machine(&Facts { cloud, ..Facts::default() }.machine());
        assert_eq!(cloud(aws), Some(CloudProvider::Aws));
        assert_eq!(cloud(gce), Some(CloudProvider::Gce));
        assert_eq!(cloud(CloudFacts::default()), None);
    }
}
