//! What was observed on this machine and from its cloud: everything a decision may depend on besides
//! the state store.
//!
//! A `Facts` file and a store are a complete test or support case: `kops-agent facts` prints one,
//! `--facts FILE` puts one in the place of observation.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_with::{apply, skip_serializing_none};

use super::omit::is_zero;

/// Everything observed on one machine.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    pub arch: Architecture,
    /// The operating system's own name for itself.
    pub distro: Distro,
    /// What the kernel calls this host.
    #[serde(default)]
    pub hostname: String,
    /// Addresses that the host's own name resolves to on it; empty where it resolves to none but the
    /// loopback address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hostname_addresses: Vec<String>,
    /// Users of the machine that people may log in as, besides root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub login_users: Vec<LoginUser>,
    /// Network interfaces, in the kernel's order.
    #[serde(default)]
    pub interfaces: Vec<Interface>,
    /// Whether systemd-resolved keeps a resolver list without its loopback stub
    /// (`/run/systemd/resolve/resolv.conf` exists).
    #[serde(default)]
    pub systemd_resolved: bool,
    /// Kernel release (`uname -r`).
    pub kernel: Option<String>,
    /// Memory that the kernel can use, in bytes.
    pub memory_bytes: Option<u64>,
    /// Name servers of `/etc/resolv.conf`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// Whether the BPF file system is mounted on `/sys/fs/bpf` without a unit that asks for it, as
    /// systemd does by itself since version 238.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bpf_mounted_by_systemd: bool,
    /// Text of `/etc/fstab`; `None` where there is none.
    pub fstab: Option<String>,
    /// Whether the image brings NVIDIA's driver and `/usr/bin/nvidia-container-runtime`, by which containers use it; `None` where
    /// nobody has looked.
    pub nvidia_runtime: Option<bool>,
    /// State of SELinux; `None` where the kernel has none.
    pub selinux: Option<Selinux>,
    /// What the cloud says of this machine.
    #[serde(default)]
    pub cloud: CloudFacts,
}

impl Facts {
    /// Which machine was observed, by what its cloud calls it and else by its host name, and whether it only gets ready for a
    /// warm pool. A state that was applied to one is none for another: an image may be made of a node's disk.
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

/// What the target lifecycle state of an instance begins with that gets ready for a warm pool.
pub const WARMED: &str = "Warmed:";

/// A processor architecture, by Go's name for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// `x86_64`.
    #[default]
    Amd64,
    /// `aarch64`.
    Arm64,
}

impl Architecture {
    /// Go's name, as it stands in asset URLs and in nodeupconfig.
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

/// Which distribution this is, as `/etc/os-release` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Distro {
    /// `ID`.
    pub id: String,
    /// `VERSION_ID`.
    #[serde(rename = "versionID", default)]
    pub version_id: String,
}

/// A user of the machine.
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
    /// The kernel's name for it.
    #[serde_with(skip_apply)]
    pub name: String,
    /// Its hardware address, if it has one.
    pub mac: Option<String>,
    /// Its addresses with prefix lengths.
    pub addresses: Vec<String>,
    /// Whether the kernel made it up, with no device behind it (no `/sys/class/net/NAME/device`).
    #[serde(rename = "virtual")]
    pub is_virtual: bool,
}

/// Whether SELinux denies or only logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Selinux {
    Enforcing,
    Permissive,
}

/// What the cloud's metadata service says; at most one of these is set.
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
    /// The range of IPv6 addresses that the cloud has given this machine for its pods; empty where it has none.
    pub fn ipv6_prefix(&self) -> &str {
        self.aws.as_ref().map_or("", |aws| &aws.ipv6_prefix)
    }

    /// The type of this instance, where nodes are decided by it.
    pub fn instance_type(&self) -> Option<&str> {
        self.aws.as_ref().map(|aws| aws.instance_type.as_str())
    }
}

/// An EC2 instance, as its metadata service describes it, and EC2 its type.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AwsFacts {
    /// `instance-id`.
    #[serde(rename = "instanceID")]
    pub instance_id: String,
    /// `instance-type`.
    #[serde(default)]
    pub instance_type: String,
    /// `placement/region`.
    pub region: String,
    /// `placement/availability-zone`.
    #[serde(default)]
    pub availability_zone: String,
    /// `local-ipv4`; empty on an IPv6-only subnet.
    #[serde(rename = "localIPv4", default)]
    pub local_ipv4: String,
    /// `public-ipv4`; empty where it has none.
    #[serde(rename = "publicIPv4", default)]
    pub public_ipv4: String,
    /// `ipv6`; empty where it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ipv6: String,
    /// `local-hostname`.
    #[serde(default)]
    pub local_hostname: String,
    /// `mac` of the primary interface.
    #[serde(default)]
    pub mac: String,
    /// `network/interfaces/macs/<mac>/ipv6-prefix` of the primary interface; empty where it has none yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ipv6_prefix: String,
    /// Limits of the instance type, of EC2's DescribeInstanceTypes; `None` where EC2 was not asked or did not say.
    /// It is asked only for a node that is decided by it (`Inputs::wants_instance_type` of `agent/plan`).
    pub network_interfaces: Option<NetworkInterfaceLimits>,
    /// Whether the instance type has a GPU; `None` like the limits above.
    pub gpu: Option<bool>,
    /// `autoscaling/target-lifecycle-state`; empty outside an Auto Scaling group.
    #[serde(default)]
    pub target_lifecycle_state: String,
}

/// What EC2 tells of an instance type: the same of every instance of it, in every region, for as long as it is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceType {
    /// What it can have of interfaces and addresses.
    pub network_interfaces: NetworkInterfaceLimits,
    /// Whether it has a GPU.
    pub gpu: bool,
}

/// How many interfaces and addresses an instance type can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterfaceLimits {
    pub max: u32,
    /// IPv4 addresses on each.
    #[serde(rename = "ipv4PerInterface")]
    pub ipv4_per_interface: u32,
}

impl AwsFacts {
    /// Whether everything that EC2 tells of an instance type is known of this instance's.
    pub fn knows_instance_type(&self) -> bool {
        self.network_interfaces.is_some() && self.gpu.is_some()
    }

    /// Takes over what EC2 tells of this instance's type, where a facts file has not said it already.
    pub fn complete(&mut self, instance_type: InstanceType) {
        self.network_interfaces.get_or_insert(instance_type.network_interfaces);
        self.gpu.get_or_insert(instance_type.gpu);
    }
}

/// A GCE instance, as its metadata server describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GceFacts {
    /// `instance/hostname`, fully qualified.
    pub hostname: String,
    /// `project/project-id`.
    #[serde(default)]
    pub project: String,
    /// The last part of `instance/zone`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// `instance/name`, by which Compute Engine knows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// A Hetzner Cloud server, as its metadata service describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HetznerFacts {
    /// `instance-id`.
    #[serde(rename = "instanceID")]
    pub instance_id: String,
    /// Address in the private network of interface number 1; empty where there is none.
    #[serde(rename = "privateIPv4", default)]
    pub private_ipv4: String,
}

/// A virtual machine of Azure, as its instance metadata describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AzureFacts {
    /// `compute/resourceId`.
    #[serde(rename = "resourceID")]
    pub resource_id: String,
}

/// A droplet of DigitalOcean, as its metadata service describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DigitalOceanFacts {
    /// `id`.
    #[serde(rename = "dropletID", default, skip_serializing_if = "String::is_empty")]
    pub droplet_id: String,
    /// `interfaces/private/0/ipv4/address`.
    #[serde(rename = "privateIPv4")]
    pub private_ipv4: String,
}

/// An instance of Linode, as its metadata service describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinodeFacts {
    /// `instance.label`.
    pub label: String,
    /// `instance.id`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
}

/// A server of Scaleway, as its metadata service describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayFacts {
    /// `id`.
    #[serde(rename = "serverID")]
    pub server_id: String,
    /// `location.zone_id`.
    #[serde(default)]
    pub zone: String,
}

/// An OpenStack server, as its metadata describe it. They are asked only for a machine with an API server
/// (`Inputs::wants_openstack_address` of `agent/plan`), and by one that has to prove itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenstackFacts {
    /// `uuid` of `meta_data.json`; empty where it was not asked for.
    #[serde(rename = "serverID", default, skip_serializing_if = "String::is_empty")]
    pub server_id: String,
    /// `local-ipv4` of the EC2-compatible metadata; empty where it has none.
    #[serde(rename = "localIPv4", default)]
    pub local_ipv4: String,
}
