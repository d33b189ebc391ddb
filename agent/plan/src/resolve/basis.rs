//! The inputs for resolving every component, and values that follow from these inputs.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_spec::facts::{AwsFacts, Facts};
use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::{BootConfig, CloudProvider, InstanceGroupRole, Keyset, NodeupConfig};

use kops_agent_spec::kops_release::KopsRelease;

use super::{Asset, Assets, Distribution, KubernetesVersion, NodeName};

/// The parts of a node's configuration that are resolved before the components.
#[derive(Clone, Copy, Debug)]
pub(super) struct Basis<'a> {
    pub(super) boot: &'a BootConfig,
    pub(super) config: &'a NodeupConfig,
    pub(super) keysets: &'a BTreeMap<String, Keyset>,
    pub(super) secret_names: &'a BTreeSet<String>,
    pub(super) manifests: &'a BTreeMap<String, String>,
    pub(super) facts: &'a Facts,
    pub(super) release: KopsRelease,
    pub(super) kubernetes_version: &'a KubernetesVersion,
    pub(super) distribution: &'static Distribution,
    pub(super) assets: &'a Assets,
    pub(super) node_name: &'a NodeName,
}

impl Basis<'_> {
    pub(super) fn is_control_plane(&self) -> bool {
        self.boot.instance_group_role == InstanceGroupRole::ControlPlane
    }

    /// EC2's facts about this machine. `None` if the machine does not run on AWS.
    pub(super) fn aws(&self) -> Option<&AwsFacts> {
        self.facts.cloud.aws.as_ref().filter(|_| self.boot.cloud_provider == CloudProvider::Aws)
    }

    /// Whether Cilium gives pods addresses of the machine's own network interfaces.
    pub(super) fn uses_cilium_eni(&self) -> bool {
        self.config.networking.cilium.as_ref().is_some_and(|cilium| cilium.ipam == "eni")
    }

    /// Whether pods have IPv6 addresses only.
    pub(super) fn is_ipv6_only(&self) -> bool {
        self.config.networking.non_masquerade_cidr.contains(':')
    }

    /// Returns the download with this file name, or a problem text if the list of downloads does not have
    /// this name.
    pub(super) fn required(&self, name: &str) -> Result<Asset, Invalid> {
        let asset = self.assets.named(name).cloned();
        asset.ok_or_else(|| {
            Invalid::new(format!("has no {name}; run `kops update cluster --yes` to write the list again"))
        })
    }

    /// The path of the field with the list of downloads, for problem texts.
    pub(super) fn assets_field(&self) -> String {
        format!("Assets.{}", self.facts.arch)
    }
}
