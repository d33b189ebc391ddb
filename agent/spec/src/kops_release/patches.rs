//! The differences between the patch releases of a minor version. The agent applies the rules of the newest known patch release to every
//! node. If another patch release wrote the configuration, a warning lists the differences.

use super::parts;

/// A minor version of kOps whose patch releases produce different nodes.
struct Minor {
    minor: u64,
    /// The patch release whose rules the agent follows.
    decided: u64,
    /// The patch releases that set up nodes differently than earlier ones, the oldest first. Each text says what the earlier patch releases
    /// do differently.
    changes: &'static [(u64, &'static str)],
}

/// This list comes from `git diff` between upstream's tags, in nodeup, upup/pkg/fi/nodeup, pkg/nodemodel, pkg/apis/nodeup,
/// pkg/model/components, pkg/bootstrap, pkg/applylib and util/pkg/distributions. The list omits the versions of images and programs,
/// because the configuration contains them.
const MINORS: [Minor; 3] = [
    Minor {
        minor: 34,
        decided: 3,
        changes: &[
            (
                2,
                "kubelet's maxParallelImagePulls, kubelet in warm pools, kube-router's /usr/share/iproute2, the URLs of CNI plugins",
            ),
            (3, "systemd-networkd and cloud-init with several network interfaces on AWS"),
        ],
    },
    Minor {
        minor: 35,
        decided: 2,
        changes: &[
            (
                1,
                "systemd-networkd and cloud-init with several network interfaces on AWS, protokube's variables on Azure, the default \
                 version of containerd",
            ),
            (
                2,
                "firewalld, iptables-nft and kernel modules on the distributions of RHEL 10, quotes in flags of control planes",
            ),
        ],
    },
    Minor {
        minor: 36,
        decided: 2,
        changes: &[(
            2,
            "systemd-networkd with several network interfaces on AWS, the health of add-ons' objects",
        )],
    },
];

/// A warning if nodes of this kOps version may differ from kops-agent's nodes. `None` if there is no known difference, or if upstream has
/// not released this minor version.
pub(super) fn difference(version: &str) -> Option<String> {
    let (minor, patch, is_preview) = parts(version)?;
    let Minor { decided, changes, .. } = MINORS.iter().find(|known| known.minor == minor)?;
    let is_older = |changed: u64| patch < changed || (patch == changed && is_preview);
    let differing: Vec<&str> =
        changes.iter().filter(|(changed, _)| is_older(*changed)).map(|(_, what)| *what).collect();
    let decided_as = format!(
        "kOps {version} wrote this configuration, but kops-agent uses the rules of kOps 1.{minor}.{decided}"
    );
    if patch > *decided {
        return Some(format!("{decided_as}; the changes that kOps {version} makes to nodes are unknown"));
    }
    let differing = differing.join(", ");
    (!differing.is_empty())
        .then(|| format!("{decided_as}; nodes of these two releases may differ in: {differing}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn all_patch_releases_but_the_newest_known_give_a_warning() {
        for exact in ["1.34.3", "v1.35.2", "1.36.2", "1.37.0-alpha.1", "1.37.1"] {
            assert_eq!(difference(exact), None, "{exact}");
        }
        for (version, expected, other) in [
            ("1.34.0", "maxParallelImagePulls", "are unknown"),
            ("1.34.2", "several network interfaces on AWS", "maxParallelImagePulls"),
            ("1.34.3-beta.1", "several network interfaces on AWS", "maxParallelImagePulls"),
            ("1.35.1", "firewalld", "network interfaces"),
            ("1.36.0", "health of add-ons' objects", "firewalld"),
            ("1.36.3", "are unknown", "differ in"),
        ] {
            let difference = difference(version).unwrap();
            assert!(difference.contains(expected) && !difference.contains(other), "{version}: {difference}");
        }
    }
}
