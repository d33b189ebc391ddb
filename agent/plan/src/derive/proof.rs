//! Finds possible reasons why a derived configuration differs from the configuration that `NodeupConfigHash` in the user-data pins. The
//! error message lists these reasons.
//!
//! kOps' output depends on the store, and on a few values from other places. Each of these values is a [`Reason`].

use super::Inputs;
use super::differences::FieldDifference;
use kops_agent_spec::NodeupConfig;
use kops_agent_spec::urls::{hash_and_urls, shown_url};

/// A possible reason why kOps' configuration differs from the derived configuration. In each case, kOps used an input that is not in the
/// store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Addresses of load balancers, which only the cloud knows.
    LoadBalancerAddresses,
    /// The older Kubernetes version of workers, which kOps keeps while the control plane is upgraded.
    WorkersHeldBack,
    /// The machine type, if kOps got it from the cloud's default or API.
    MachineType,
    /// The hashes and URLs of downloads, which depend on kOps' release and environment.
    Downloads,
    /// Fields that only older kOps releases write.
    OlderRelease,
    /// A different kOps release, whose fields may differ in name, order or spelling.
    OtherRelease,
}

impl Reason {
    /// The reason as a part of a sentence. The error message puts "perhaps" before the reason.
    pub fn text(self) -> &'static str {
        match self {
            Reason::LoadBalancerAddresses => {
                "the API's load balancer had other addresses when kOps ran (only the cloud knows them)"
            }
            Reason::WorkersHeldBack => {
                "kOps held this group at an older Kubernetes version while the control plane was being upgraded"
            }
            Reason::MachineType => {
                "kOps asked the cloud about the group's machine type (its default, or whether it has a GPU)"
            }
            Reason::Downloads => {
                "kOps ran with CNI_VERSION_URL, KOPS_BASE_URL or KOPS_ARCH set, or its release names other downloads or hashes"
            }
            Reason::OlderRelease => {
                "an older release of kOps wrote the file (1.35 and older write Azure* and Channels; 1.36 and older write \
                 GossipConfig and UsesLegacyGossip)"
            }
            Reason::OtherRelease => "another release of kOps wrote the file",
        }
    }

    fn explains(self, path: &str) -> bool {
        let starts = |names: &[&str]| names.iter().any(|name| path.starts_with(name));
        match self {
            Reason::LoadBalancerAddresses => starts(&["ApiserverAdditionalIPs"]),
            Reason::WorkersHeldBack => starts(&["KubernetesVersion", "Assets"]),
            Reason::MachineType => starts(&[
                "DefaultMachineType",
                "NvidiaGPU",
                "KubeletConfig.nodeLabels",
                "KubeletConfig.taints",
            ]),
            Reason::Downloads => starts(&["Assets", "images"]),
            Reason::OlderRelease | Reason::OtherRelease => false,
        }
    }

    fn is_possible(self, inputs: &Inputs<'_>) -> bool {
        match self {
            Reason::LoadBalancerAddresses => {
                inputs.runs_api_server() && inputs.api_server_addresses.is_empty()
            }
            Reason::WorkersHeldBack => {
                !inputs.runs_api_server() && inputs.worker_kubernetes_version.is_none()
            }
            Reason::MachineType => inputs.instance_group.spec.machine_type.is_empty(),
            Reason::Downloads | Reason::OtherRelease => true,
            Reason::OlderRelease => false,
        }
    }
}

const ALL: [Reason; 6] = [
    Reason::LoadBalancerAddresses,
    Reason::WorkersHeldBack,
    Reason::MachineType,
    Reason::Downloads,
    Reason::OlderRelease,
    Reason::OtherRelease,
];

/// Fields that kOps no longer writes (pkg/apis/nodeup/config.go in releases up to 1.36).
const OF_OLDER_RELEASES: [&str; 8] = [
    "AzureLocation",
    "AzureResourceGroup",
    "AzureRouteTableName",
    "AzureSubscriptionID",
    "AzureTenantID",
    "Channels",
    "GossipConfig",
    "UsesLegacyGossip",
];

/// The likely reasons, the most likely first. `pinned` has the differences and the unknown fields of kOps' configuration file, if this file
/// is readable. Without `pinned`, the result has all reasons that are possible for this group.
pub fn reasons(inputs: &Inputs<'_>, pinned: Option<(&[FieldDifference], &[String])>) -> Vec<Reason> {
    let Some((differences, unknown_fields)) = pinned else {
        return ALL.into_iter().filter(|reason| reason.is_possible(inputs)).collect();
    };
    let is_old = |field: &String| OF_OLDER_RELEASES.iter().any(|old| field.starts_with(old));
    let unexplained =
        differences.iter().any(|difference| !ALL.into_iter().any(|reason| reason.explains(&difference.path)));
    let is_likely = |reason: &Reason| match reason {
        Reason::OlderRelease => unknown_fields.iter().any(is_old),
        Reason::OtherRelease => {
            // If all fields are equal but the bytes differ, the spelling is different.
            unexplained || unknown_fields.iter().any(|field| !is_old(field)) || differences.is_empty()
        }
        reason => {
            reason.is_possible(inputs)
                && differences.iter().any(|difference| reason.explains(&difference.path))
        }
    };
    ALL.into_iter().filter(is_likely).collect()
}

/// The URLs of downloads with an unknown hash, for display.
pub fn unhashed(config: &NodeupConfig) -> Vec<String> {
    let assets = config.assets.values().flatten().filter(|entry| hash_and_urls(entry).0.is_none());
    let images = config.images.values().flatten().filter(|image| image.hash.is_empty());
    assets.chain(images.flat_map(|image| &image.sources)).map(|url| shown_url(url)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::Store;
    use super::*;

    fn difference(path: &str) -> FieldDifference {
        FieldDifference { path: path.into(), ours: "a".into(), theirs: "b".into() }
    }

    fn likely(group: &str, paths: &[&str], unknown: &[&str]) -> Vec<Reason> {
        let differences: Vec<_> = paths.iter().map(|path| difference(path)).collect();
        let unknown: Vec<_> = unknown.iter().map(|field| (*field).to_owned()).collect();
        reasons(&Store::new("", group).inputs(), Some((&differences, &unknown)))
    }

    const CONTROL_PLANE: &str = "role: ControlPlane, machineType: m5.large";
    const NODE: &str = "role: Node, machineType: m5.large";

    #[test]
    fn each_differing_field_has_its_reason() {
        assert_eq!(likely(CONTROL_PLANE, &["ApiserverAdditionalIPs"], &[]), [Reason::LoadBalancerAddresses]);
        assert_eq!(
            likely(NODE, &["KubernetesVersion", "Assets.amd64"], &[]),
            [Reason::WorkersHeldBack, Reason::Downloads]
        );
        assert_eq!(likely(CONTROL_PLANE, &["Assets.amd64[0]"], &[]), [Reason::Downloads]);
        assert_eq!(likely("role: Node", &["DefaultMachineType"], &[]), [Reason::MachineType]);
        assert_eq!(likely(NODE, &["KubeletConfig.maxPods"], &[]), [Reason::OtherRelease]);
    }

    #[test]
    fn a_removed_field_means_an_older_release() {
        assert_eq!(likely(NODE, &[], &["Channels"]), [Reason::OlderRelease, Reason::OtherRelease]);
        assert_eq!(likely(NODE, &["Assets"], &["GossipConfig.secret"])[2], Reason::OlderRelease);
        assert_eq!(likely(NODE, &[], &[]), [Reason::OtherRelease], "equal fields, other bytes");
    }

    #[test]
    fn without_the_pinned_file_all_possible_reasons_are_listed() {
        let of = |group| reasons(&Store::new("", group).inputs(), None);
        assert_eq!(
            of(CONTROL_PLANE),
            [Reason::LoadBalancerAddresses, Reason::Downloads, Reason::OtherRelease]
        );
        assert_eq!(
            of("role: Node"),
            [Reason::WorkersHeldBack, Reason::MachineType, Reason::Downloads, Reason::OtherRelease]
        );
    }

    #[test]
    fn downloads_without_a_hash_are_listed() {
        let mut config = NodeupConfig::default();
        let entries = ["https://a/x", "00@https://a/y", "https://robot:hunter2@a/z"];
        config.assets.insert("amd64".into(), entries.map(str::to_owned).to_vec());
        assert_eq!(unhashed(&config), ["https://a/x", "https://a/z"]);
    }
}
