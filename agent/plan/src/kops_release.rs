//! Every difference between kOps releases that decides a node.
//!
//! A gate is a method with the name of what it decides; no other module compares kOps versions. Source: upstream at the tags
//! v1.34.3, v1.35.2 and v1.36.2, and its main branch (1.37-alpha).

mod written_by;

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use kops_agent_spec::NodeupConfig;

pub use written_by::{Evidence, WrittenBy};

/// The oldest minor version of kOps whose stores are decided.
const OLDEST_SUPPORTED_MINOR: u64 = 34;
/// The newest minor version of kOps that is known. A newer one is decided by the same rules.
const NEWEST_KNOWN_MINOR: u64 = 37;

/// A kOps release, as far as nodes depend on it: its minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KopsRelease {
    minor: u64,
}

impl Serialize for KopsRelease {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads a release that was noted, also one that is no longer supported or not known yet.
impl<'de> Deserialize<'de> for KopsRelease {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let minor =
            minor_of(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no release of kOps")))?;
        Ok(KopsRelease { minor })
    }
}

impl fmt::Display for KopsRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor)
    }
}

/// Some of the kOps releases, by their minor versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Releases {
    All,
    /// This one and older ones.
    UpTo(u64),
    /// This one and newer ones.
    Since(u64),
}

/// The minor version of `1.35.2`, `v1.36.0-beta.1` or `1.37.0-alpha.1+commit`; `None` for what is no version of kOps 1.
fn minor_of(version: &str) -> Option<u64> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let mut parts = version.split(['.', '-', '+']);
    (parts.next()? == "1").then(|| parts.next()?.parse().ok())?
}

impl KopsRelease {
    /// The newest that is known.
    pub const NEWEST: KopsRelease = KopsRelease { minor: NEWEST_KNOWN_MINOR };

    /// All that are supported, the oldest first.
    pub fn supported() -> impl Iterator<Item = KopsRelease> {
        (OLDEST_SUPPORTED_MINOR..=NEWEST_KNOWN_MINOR).map(|minor| KopsRelease { minor })
    }

    /// The release of a version. One that is newer than known counts as the newest.
    ///
    /// # Errors
    /// If it is no version, or older than what is supported.
    pub fn of_version(version: &str) -> Result<KopsRelease, String> {
        let minor = minor_of(version).ok_or_else(|| format!("{version:?} is no version of kOps"))?;
        if minor < OLDEST_SUPPORTED_MINOR {
            return Err(format!(
                "kOps {version} wrote this configuration, and kops-agent supports kOps 1.{OLDEST_SUPPORTED_MINOR} and newer; run \
                 `kops update cluster --yes` with such a release first"
            ));
        }
        Ok(KopsRelease { minor: minor.min(NEWEST_KNOWN_MINOR) })
    }

    /// The release by the fields that it writes. kOps writes `usesLegacyGossip` up to 1.36, `channels` up to 1.35, and the
    /// pause image up to 1.34 among kubelet's settings (pkg/apis/nodeup/config.go, pkg/model/components/kubelet.go).
    fn of_fields(config: &NodeupConfig) -> KopsRelease {
        let minor = if config.uses_legacy_gossip.is_none() {
            NEWEST_KNOWN_MINOR
        } else if !config.kubelet_config.pod_infra_container_image.is_empty() {
            34
        } else if !config.channels.is_empty() {
            35
        } else {
            36
        };
        KopsRelease { minor }
    }

    /// Whether its configuration of a worker looks like that of another release.
    fn is_ambiguous(self) -> bool {
        self.is_at_most(36)
    }

    /// Whether it is one of these.
    pub fn is_in(self, releases: Releases) -> bool {
        match releases {
            Releases::All => true,
            Releases::UpTo(newest) => self.minor <= newest,
            Releases::Since(oldest) => self.minor >= oldest,
        }
    }

    fn is_at_most(self, minor: u64) -> bool {
        self.minor <= minor
    }

    /// The Kubernetes minor version from which on it makes nodes (`OldestSupportedKubernetesVersion` in
    /// upup/pkg/fi/cloudup/apply_cluster.go).
    pub fn oldest_kubernetes_minor(self) -> u64 {
        match self.minor {
            ..=35 => 29,
            36 => 31,
            _ => 32,
        }
    }

    /// protokube applies add-ons and labels the control plane, on each control plane (nodeup/pkg/model/protokube.go). Later a
    /// static pod, kops-channels, does.
    pub fn protokube_applies_addons(self) -> bool {
        self.is_at_most(35)
    }

    /// A manifest in the place of a channel is a channel of one add-on; before, it is a channel without any
    /// (`ParseAddons` in channels/pkg/channels/addons.go).
    pub fn takes_manifests_for_channels(self) -> bool {
        !self.is_at_most(35)
    }

    /// Any condition that is False says that an object of an add-on is not healthy; later, only conditions of known types do
    /// (pkg/applylib/applyset/health.go).
    pub fn all_conditions_tell_of_health(self) -> bool {
        self.is_at_most(35)
    }

    /// Names of a cluster may be spread by gossip, which protokube does.
    pub fn has_gossip(self) -> bool {
        self.is_at_most(36)
    }

    /// In gossip clusters any load balancer of the API leads machines to kops-controller too; before, only on GCE.
    pub fn gossip_clusters_use_load_balancers(self) -> bool {
        !self.is_at_most(35)
    }

    /// Control planes and API servers are told the API's addresses too, where others are.
    pub fn tells_api_servers_their_addresses(self) -> bool {
        self.is_at_most(35)
    }

    /// Machines that are told addresses are also told which name the server's certificate has.
    pub fn tells_the_servers_name(self) -> bool {
        !self.is_at_most(35)
    }

    /// Machines of IPv6-only clusters are told IPv6 addresses only.
    pub fn tells_reachable_addresses_only(self) -> bool {
        !self.is_at_most(36)
    }

    /// A worker of a gossip cluster that knows the API server's addresses needs no gossip.
    pub fn addresses_replace_gossip(self) -> bool {
        !self.is_at_most(35)
    }

    /// kubelet gets nearly all of its settings by flags, and later by its configuration file.
    pub fn kubelet_settings_are_flags(self) -> bool {
        self.is_at_most(35)
    }

    /// Control planes wait less before they start a failing container again.
    pub fn limits_crash_loops(self) -> bool {
        !self.is_at_most(34)
    }

    /// The pause image is a setting of kubelet's, and later one of containerd's.
    pub fn pause_image_is_kubelets(self) -> bool {
        self.is_at_most(34)
    }

    /// containerd's configuration has the form of containerd 1, whatever containerd runs, with registry mirrors in it. containerd 2
    /// converts it as it starts.
    pub fn containerd_configuration_is_of_1(self) -> bool {
        self.is_at_most(35)
    }

    /// Takes the version in the spec for that of containerd, also where the distribution brings one.
    pub fn takes_containerds_version_from_the_spec(self) -> bool {
        self.is_at_most(36)
    }

    /// The newest form of containerd's configuration that it writes.
    pub fn newest_containerd_configuration(self) -> i64 {
        if self.is_at_most(36) { 3 } else { 4 }
    }

    /// It knows the container runtime gVisor.
    pub fn has_gvisor(self) -> bool {
        !self.is_at_most(35)
    }

    /// The version of the CNI configuration that stands in for kubenet.
    pub fn kubenet_cni_version(self) -> &'static str {
        if self.is_at_most(34) { "0.4.0" } else { "1.0.0" }
    }

    /// Code for clouds in Kubernetes itself has a configuration file of its own.
    pub fn has_in_tree_cloud_config(self) -> bool {
        self.is_at_most(35)
    }

    /// kubelet is told its id on Azure, whose cloud configuration is a Secret of the cluster's from then on.
    pub fn azure_nodes_have_provider_ids(self) -> bool {
        !self.is_at_most(35)
    }

    /// kube-proxy sees its kubeconfig alone, and not the folder of it.
    pub fn kube_proxy_mounts_kubeconfig_alone(self) -> bool {
        self.is_at_most(35)
    }

    /// kube-proxy is told to use nftables where the kernel has nothing else.
    pub fn forces_nftables(self) -> bool {
        !self.is_at_most(34)
    }

    /// kube-scheduler always asks the API server who may see its endpoints.
    pub fn kube_scheduler_must_look_up_users(self) -> bool {
        !self.is_at_most(34)
    }

    /// Knows what systemd-networkd and cloud-init of Debian 12 and newer do when an interface is attached.
    pub fn knows_debians_networkd(self) -> bool {
        !self.is_at_most(35)
    }

    /// Interfaces of pods are told apart from the primary one by its name; before, by what Amazon Linux calls them.
    pub fn knows_the_primary_interface(self) -> bool {
        !self.is_at_most(35)
    }

    /// Raises the number of files that one user may watch.
    pub fn raises_inotify_watches(self) -> bool {
        self.is_at_most(35)
    }

    /// Logs of an etcd cluster for Leases are rotated.
    pub fn has_etcd_leases(self) -> bool {
        !self.is_at_most(35)
    }

    /// Installs the tools that containerd 1 and Docker asked for: pigz, conntrack and others.
    pub fn installs_tools_of_docker(self) -> bool {
        self.is_at_most(34)
    }

    /// Nodes on GCE download a program for mounts on Container-Optimized OS.
    pub fn has_mounter(self) -> bool {
        self.is_at_most(35)
    }

    /// Nodes are told whether Calico may use WireGuard.
    pub fn tells_of_wireguard(self) -> bool {
        !self.is_at_most(34)
    }

    /// Nodes are told the machine type where Cilium takes addresses from AWS.
    pub fn tells_cilium_the_machine_type(self) -> bool {
        !self.is_at_most(35)
    }

    /// Nodes of Karpenter are labelled with their group as their provisioner (pkg/nodelabels/builder.go).
    pub fn labels_nodes_of_karpenter(self) -> bool {
        self.is_at_most(35)
    }

    /// Nodes of Karpenter register with its taint.
    pub fn taints_nodes_of_karpenter(self) -> bool {
        !self.is_at_most(35)
    }

    /// Network load balancers of Services may have security groups.
    pub fn knows_nlb_security_groups(self) -> bool {
        !self.is_at_most(35)
    }

    /// Nodes are told whether AWS' names for them count.
    pub fn tells_of_ip_based_names(self) -> bool {
        !self.is_at_most(36)
    }

    /// A cluster may have a discovery service.
    pub fn has_discovery_service(self) -> bool {
        !self.is_at_most(34)
    }

    /// The release of the CNI plugins for a Kubernetes minor version; none where the release does not support that
    /// (pkg/nodemodel/wellknownassets/cni.go).
    pub fn cni_plugins(self, kubernetes_minor: u64) -> Option<&'static str> {
        if kubernetes_minor < self.oldest_kubernetes_minor() {
            return None;
        }
        Some(match kubernetes_minor {
            ..=29 => "1.3.0",
            30 => "1.4.1",
            31 => "1.5.1",
            34 if !self.is_at_most(36) => "1.7.1",
            35 if !self.is_at_most(36) => "1.8.0",
            36.. if !self.is_at_most(36) => "1.9.1",
            _ => "1.6.2",
        })
    }

    /// The versions of the images beside the EBS CSI driver: csi-node-driver-registrar and livenessprobe
    /// (upup/models/cloudup/resources/addons/aws-ebs-csi-driver.addons.k8s.io).
    pub fn sidecars_of_ebs(self) -> (&'static str, &'static str) {
        if self.is_at_most(35) { ("v2.14.0", "v2.16.0") } else { ("v2.16.0", "v2.18.0") }
    }

    /// Calico's version, unless the cluster names one (upup/models/cloudup/resources/addons/networking.projectcalico.org).
    pub fn calico(self) -> &'static str {
        match self.minor {
            ..=34 => "v3.30.3",
            35 | 36 => "v3.31.3",
            _ => "v3.31.6",
        }
    }

    /// The oldest containerd that it downloads, as major and minor version.
    pub fn oldest_containerd(self) -> (u64, u64) {
        if self.is_at_most(36) { (1, 6) } else { (2, 1) }
    }

    /// That program is a build of a day, from a bucket of its own.
    pub fn has_dated_gce_credential_provider(self) -> bool {
        self.is_at_most(34)
    }

    /// The file name of the program that gives kubelet credentials for Google's registries.
    pub fn gce_credential_provider(self) -> &'static str {
        if self.is_at_most(34) { "v20231005-providersv0.27.1-65-g8fbe8d27" } else { "auth-provider-gcp" }
    }

    /// WireGuard's tools are installed on Ubuntu whenever Calico runs, whether or not it may use them.
    pub fn always_installs_wireguard(self) -> bool {
        self.is_at_most(34)
    }

    /// Tells protokube the name of Azure's storage account; later the URLs of the store have it.
    pub fn passes_on_azures_account(self) -> bool {
        self.is_at_most(34)
    }

    /// Passes on whether OpenStack's certificates are to be believed unseen.
    pub fn knows_insecure_openstack(self) -> bool {
        !self.is_at_most(34)
    }

    /// On machines with an API server root may write the key of kubelet's own server.
    pub fn lets_root_write_kubelets_key(self) -> bool {
        self.is_at_most(35)
    }

    /// The certificate of kubelet's own server is in the Node's name, and not in the instance's.
    pub fn kubelet_serves_by_node_name(self) -> bool {
        !self.is_at_most(36)
    }

    /// Dedicated API servers find etcd by addresses of a load balancer.
    pub fn api_servers_know_etcd_addresses(self) -> bool {
        !self.is_at_most(36)
    }
}
