//! All differences between kOps releases that affect a node.
//!
//! Each difference is a method (a gate) that is named after its effect. No other module compares kOps versions:
//! `tests/lints/kops-versions` checks that. Source: upstream at the tags v1.34.3, v1.35.2 and v1.36.2, and its main branch (1.37-alpha).

mod patches;
mod written_by;

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::NodeupConfig;
use crate::invalid::Invalid;

pub use written_by::{Evidence, Told, VARIABLE, WrittenBy};

/// The oldest supported minor version of kOps.
const OLDEST_SUPPORTED_MINOR: u64 = 34;
/// The newest known minor version of kOps. The agent applies the rules of this version to newer versions, too.
const NEWEST_KNOWN_MINOR: u64 = 37;

/// A kOps release, identified by its minor version. The agent follows the rules of the newest known patch release: 1.34.3, 1.35.2 or
/// 1.36.2. The module `patches` lists what older patch releases do differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KopsRelease {
    minor: u64,
}

impl Serialize for KopsRelease {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads a recorded release. The release may be unsupported or unknown to this agent.
impl<'de> Deserialize<'de> for KopsRelease {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let minor =
            minor_of(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is not a kOps release")))?;
        Ok(KopsRelease { minor })
    }
}

impl fmt::Display for KopsRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Releases {
    All,
    /// This minor version and all older releases.
    UpTo(u64),
    /// This minor version and all newer releases.
    Since(u64),
}

/// The minor version of `1.35.2`, `v1.36.0-beta.1` or `1.37.0-alpha.1+commit`. `None` if the text is not a version of kOps 1.
fn minor_of(version: &str) -> Option<u64> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let mut parts = version.split(['.', '-', '+']);
    (parts.next()? == "1").then(|| parts.next()?.parse().ok())?
}

/// The minor and patch numbers of a kOps version, and whether the version is a preview.
fn parts(version: &str) -> Option<(u64, u64, bool)> {
    let without_build = version.split('+').next()?;
    let (release, preview) = without_build.split_once('-').unwrap_or((without_build, ""));
    let patch = release.split('.').nth(2)?.parse().ok()?;
    Some((minor_of(version)?, patch, !preview.is_empty()))
}

/// Whether nodeup of this version answers a challenge of kops-controller with a constant text (`buildChallengeResponse` in
/// pkg/bootstrap/challenge_server.go). This is true for 1.34.0, 1.34.1, and the previews of 1.35.0, whose kops-controller expects this
/// text.
pub fn has_constant_proofs(version: &str) -> bool {
    match parts(version) {
        Some((34, patch, _)) => patch < 2,
        Some((35, 0, is_preview)) => is_preview,
        _ => false,
    }
}

impl KopsRelease {
    pub const NEWEST: KopsRelease = KopsRelease { minor: NEWEST_KNOWN_MINOR };

    /// All supported releases, the oldest first.
    pub fn supported() -> impl Iterator<Item = KopsRelease> {
        (OLDEST_SUPPORTED_MINOR..=NEWEST_KNOWN_MINOR).map(|minor| KopsRelease { minor })
    }

    /// The release of a version. If the version is newer than all known releases, returns the newest known release. Fails if the version is
    /// older than the oldest supported release.
    pub fn of_version(version: &str) -> Result<KopsRelease, Invalid> {
        let minor = minor_of(version).ok_or_else(|| format!("{version:?} is not a kOps version"))?;
        if minor < OLDEST_SUPPORTED_MINOR {
            return Err(Invalid::new(format!(
                "kOps {version} wrote this configuration, but kops-agent supports kOps 1.{OLDEST_SUPPORTED_MINOR} and newer; run \
                 `kops update cluster --yes` with a supported release first"
            )));
        }
        Ok(KopsRelease { minor: minor.min(NEWEST_KNOWN_MINOR) })
    }

    /// Infers the release from fields that only some releases write: `usesLegacyGossip` up to 1.36, `channels` up to 1.35, and kubelet's
    /// pause image up to 1.34 (pkg/apis/nodeup/config.go, pkg/model/components/kubelet.go). Workers of 1.35 and 1.36 have equal fields. So
    /// a worker counts as 1.35 only if its Kubernetes version is too old for 1.36.
    fn of_fields(config: &NodeupConfig) -> KopsRelease {
        let is_before_1_36 =
            !config.channels.is_empty() || !KopsRelease { minor: 36 }.takes_kubernetes_of(config);
        let minor = if config.uses_legacy_gossip.is_none() {
            NEWEST_KNOWN_MINOR
        } else if !config.kubelet_config.pod_infra_container_image.is_empty() {
            34
        } else if is_before_1_36 {
            35
        } else {
            36
        };
        KopsRelease { minor }
    }

    /// Whether this release can have written this configuration. The Kubernetes version and the fields that only some releases write
    /// decide. Releases after 1.34 always write containerd's pause image. They write kubelet's pause image only if the cluster spec
    /// has one (pkg/model/components/containerd.go).
    fn may_have_written(self, config: &NodeupConfig) -> bool {
        let names_pause_image_as_1_34 = !config.kubelet_config.pod_infra_container_image.is_empty()
            && config.containerd_config.as_ref().is_none_or(|containerd| containerd.sandbox_image.is_none());
        let fits_older_only = names_pause_image_as_1_34 && !self.pause_image_is_kubelets();
        let has_channels_of_older = !config.channels.is_empty() && !self.protokube_applies_addons();
        config.uses_legacy_gossip.is_some() == self.has_gossip()
            && !fits_older_only
            && !has_channels_of_older
            && self.takes_kubernetes_of(config)
    }

    /// Whether the Kubernetes version of this configuration is new enough for this release. Returns true if the version cannot be parsed,
    /// because a different check reports this error.
    fn takes_kubernetes_of(self, config: &NodeupConfig) -> bool {
        minor_of(&config.kubernetes_version).is_none_or(|minor| minor >= self.oldest_kubernetes_minor())
    }

    /// Whether another release may write a worker's configuration with the same fields as this release.
    fn is_ambiguous(self) -> bool {
        self.is_at_most(36)
    }

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

    /// The oldest Kubernetes minor version that this release supports (`OldestSupportedKubernetesVersion` in
    /// upup/pkg/fi/cloudup/apply_cluster.go).
    pub fn oldest_kubernetes_minor(self) -> u64 {
        match self.minor {
            ..=35 => 29,
            36 => 31,
            _ => 32,
        }
    }

    /// Whether protokube on each control plane applies add-ons and labels the control plane (nodeup/pkg/model/protokube.go). In newer
    /// releases the static pod kops-channels does this.
    pub fn protokube_applies_addons(self) -> bool {
        self.is_at_most(35)
    }

    /// Whether kOps accepts a manifest at the URL of a channel, and reads it as a channel with one add-on. Older releases read the manifest
    /// as an empty channel (`ParseAddons` in channels/pkg/channels/addons.go).
    pub fn takes_manifests_for_channels(self) -> bool {
        !self.is_at_most(35)
    }

    /// Whether an add-on's object counts as unhealthy if any of its conditions is False. Newer releases ignore conditions of unknown types
    /// (pkg/applylib/applyset/health.go).
    pub fn all_conditions_tell_of_health(self) -> bool {
        self.is_at_most(35)
    }

    /// Whether kOps supports clusters that publish their names by gossip, through protokube.
    pub fn has_gossip(self) -> bool {
        self.is_at_most(36)
    }

    /// Whether kOps supports classic load balancers for the API on AWS.
    pub fn has_classic_load_balancers(self) -> bool {
        self.is_at_most(36)
    }

    /// Whether machines of gossip clusters reach kops-controller through the API's load balancer on every cloud. In older releases, they do
    /// so only on GCE.
    pub fn gossip_clusters_use_load_balancers(self) -> bool {
        !self.is_at_most(35)
    }

    /// Whether the boot configs of control planes and API servers contain the addresses of the API.
    pub fn tells_api_servers_their_addresses(self) -> bool {
        self.is_at_most(35)
    }

    /// Whether a boot config that contains the addresses of kops-controllers also contains the DNS name in their certificates.
    pub fn tells_the_servers_name(self) -> bool {
        !self.is_at_most(35)
    }

    /// Whether the boot config of an IPv6-only cluster contains only the IPv6 addresses of the API.
    pub fn tells_reachable_addresses_only(self) -> bool {
        !self.is_at_most(36)
    }

    /// Whether a worker of a gossip cluster uses the API server's addresses instead of gossip, if the boot config has addresses.
    pub fn addresses_replace_gossip(self) -> bool {
        !self.is_at_most(35)
    }

    /// Whether kubelet gets most settings as flags. In newer releases, the settings are in kubelet's configuration file.
    pub fn kubelet_settings_are_flags(self) -> bool {
        self.is_at_most(35)
    }

    /// Whether kOps makes kubelets of control planes wait at most 60 seconds before they restart a crashing container.
    pub fn limits_crash_loops(self) -> bool {
        !self.is_at_most(34)
    }

    /// Whether kubelet's settings contain the pause image. In newer releases, containerd's settings contain it.
    pub fn pause_image_is_kubelets(self) -> bool {
        self.is_at_most(34)
    }

    /// Whether kOps always writes containerd's configuration file in the format of containerd 1, with the registry mirrors in this file.
    /// containerd 2 converts the configuration at its start.
    pub fn containerd_configuration_is_of_1(self) -> bool {
        self.is_at_most(35)
    }

    /// Whether kOps writes containerd's configuration for the version in the spec, even if the distribution provides containerd.
    pub fn takes_containerds_version_from_the_spec(self) -> bool {
        self.is_at_most(36)
    }

    /// The newest format version of containerd's configuration that kOps writes.
    pub fn newest_containerd_configuration(self) -> i64 {
        if self.is_at_most(36) { 3 } else { 4 }
    }

    /// Whether kOps supports the container runtime gVisor.
    pub fn has_gvisor(self) -> bool {
        !self.is_at_most(35)
    }

    /// The version of the CNI configuration that kOps writes in place of kubenet.
    pub fn kubenet_cni_version(self) -> &'static str {
        if self.is_at_most(34) { "0.4.0" } else { "1.0.0" }
    }

    /// Whether nodes have a second cloud configuration file, for the in-tree cloud providers of Kubernetes.
    pub fn has_in_tree_cloud_config(self) -> bool {
        self.is_at_most(35)
    }

    /// Whether kOps passes a provider id to kubelet on Azure. In releases that do so, Azure's cloud configuration is a Secret of the
    /// cluster.
    pub fn azure_nodes_have_provider_ids(self) -> bool {
        !self.is_at_most(35)
    }

    /// Whether kube-proxy mounts only its kubeconfig file. In newer releases, it mounts the folder of the kubeconfig.
    pub fn kube_proxy_mounts_kubeconfig_alone(self) -> bool {
        self.is_at_most(35)
    }

    /// Whether kOps sets kube-proxy's nftables mode on distributions whose kernel lacks iptables.
    pub fn forces_nftables(self) -> bool {
        !self.is_at_most(34)
    }

    /// Whether kube-scheduler fails if it cannot look up in the API server how to authenticate clients
    /// (`--authentication-tolerate-lookup-failure=false`).
    pub fn kube_scheduler_must_look_up_users(self) -> bool {
        !self.is_at_most(34)
    }

    /// Whether kOps stops systemd-networkd and cloud-init from configuring attached interfaces, on Debian 12 and newer.
    pub fn knows_debians_networkd(self) -> bool {
        !self.is_at_most(35)
    }

    /// Whether kOps identifies the primary interface by its name, so that all other interfaces are for pods. kOps up to 1.35 instead finds
    /// the interfaces for pods by their names, and only on Amazon Linux.
    pub fn knows_the_primary_interface(self) -> bool {
        !self.is_at_most(35)
    }

    /// Whether kOps raises the inotify watch limit per user.
    pub fn raises_inotify_watches(self) -> bool {
        self.is_at_most(35)
    }

    /// Whether logrotate rotates the logs of the etcd cluster for Leases.
    pub fn has_etcd_leases(self) -> bool {
        !self.is_at_most(35)
    }

    /// Whether kOps installs the tools for containerd 1 and Docker: pigz, conntrack and others.
    pub fn installs_tools_of_docker(self) -> bool {
        self.is_at_most(34)
    }

    /// Whether nodes with Container-Optimized OS on GCE download a mount helper.
    pub fn has_mounter(self) -> bool {
        self.is_at_most(35)
    }

    /// Whether kOps writes Calico's WireGuard setting into the node's configuration.
    pub fn tells_of_wireguard(self) -> bool {
        !self.is_at_most(34)
    }

    /// Whether kOps writes the machine type into the configurations of nodes whose Cilium gets pod addresses from AWS.
    pub fn tells_cilium_the_machine_type(self) -> bool {
        !self.is_at_most(35)
    }

    /// Whether a Karpenter node has Karpenter's provisioner label, with the group's name as the value (pkg/nodelabels/builder.go).
    pub fn labels_nodes_of_karpenter(self) -> bool {
        self.is_at_most(35)
    }

    /// Whether Karpenter nodes register themselves with Karpenter's taint.
    pub fn taints_nodes_of_karpenter(self) -> bool {
        !self.is_at_most(35)
    }

    /// Whether kOps supports security groups for network load balancers of Services.
    pub fn knows_nlb_security_groups(self) -> bool {
        !self.is_at_most(35)
    }

    /// Whether the node's configuration has a field for AWS' IP-based Node names.
    pub fn tells_of_ip_based_names(self) -> bool {
        !self.is_at_most(36)
    }

    pub fn has_discovery_service(self) -> bool {
        !self.is_at_most(34)
    }

    /// The release of the CNI plugins for a Kubernetes minor version. `None` if this kOps release does not support the Kubernetes version
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

    /// The image versions of the EBS CSI driver's sidecars: csi-node-driver-registrar and livenessprobe
    /// (upup/models/cloudup/resources/addons/aws-ebs-csi-driver.addons.k8s.io).
    pub fn sidecars_of_ebs(self) -> (&'static str, &'static str) {
        if self.is_at_most(35) { ("v2.14.0", "v2.16.0") } else { ("v2.16.0", "v2.18.0") }
    }

    /// Calico's default version (upup/models/cloudup/resources/addons/networking.projectcalico.org).
    pub fn calico(self) -> &'static str {
        match self.minor {
            ..=34 => "v3.30.3",
            35 | 36 => "v3.31.3",
            _ => "v3.31.6",
        }
    }

    /// The oldest containerd that kOps downloads, as major and minor version.
    pub fn oldest_containerd(self) -> (u64, u64) {
        if self.is_at_most(36) { (1, 6) } else { (2, 1) }
    }

    /// Whether kOps installs a version of kubelet's credential provider for Google's registries that has a date in its name. kOps downloads
    /// this version from a separate bucket.
    pub fn has_dated_gce_credential_provider(self) -> bool {
        self.is_at_most(34)
    }

    /// The file name of kubelet's credential provider for Google's registries.
    pub fn gce_credential_provider(self) -> &'static str {
        if self.is_at_most(34) { "v20231005-providersv0.27.1-65-g8fbe8d27" } else { "auth-provider-gcp" }
    }

    /// Whether kOps installs the WireGuard tools on Ubuntu whenever Calico runs, even if Calico does not use WireGuard.
    pub fn always_installs_wireguard(self) -> bool {
        self.is_at_most(34)
    }

    /// Whether kOps passes the name of Azure's storage account to protokube. In newer releases, the URLs of the store contain this name.
    pub fn passes_on_azures_account(self) -> bool {
        self.is_at_most(34)
    }

    /// Whether kOps supports the setting that accepts OpenStack's certificates without verification.
    pub fn knows_insecure_openstack(self) -> bool {
        !self.is_at_most(34)
    }

    /// Whether root may write to the file with the key of kubelet's serving certificate, on machines with an API server.
    pub fn lets_root_write_kubelets_key(self) -> bool {
        self.is_at_most(35)
    }

    /// Whether kubelet's serving certificate on AWS is for the Node's name. In older releases, it is for the instance id.
    pub fn kubelet_serves_by_node_name(self) -> bool {
        !self.is_at_most(36)
    }

    /// Whether the boot config of dedicated API servers has the addresses of the load balancer in front of etcd.
    pub fn api_servers_know_etcd_addresses(self) -> bool {
        !self.is_at_most(36)
    }
}
