//! The Kubernetes version of a node, and every version gate of upstream's node code.
//!
//! Each gate is a method that is named after its decision. No other module compares versions.

use std::fmt;

use serde::{Serialize, Serializer};

use kops_agent_spec::kops_release::KopsRelease;

/// A Kubernetes version as kOps writes it: `1.34.0`, `v1.34.0-rc.1`, or the URL of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesVersion {
    text: String,
    major: u64,
    minor: u64,
    patch: u64,
    is_pre_release: bool,
}

impl Serialize for KubernetesVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl KubernetesVersion {
    /// The newest known minor version. kOps' main branch has no asset hashes for newer versions. The agent also accepts newer versions,
    /// because upstream's nodeup has no upper bound. For newer versions, the agent applies the rules of the newest known version.
    pub const NEWEST_KNOWN_MINOR: u64 = 36;

    /// Parses a version. As in upstream, a leading `v` and a missing patch number are allowed. If the text is the URL of a build, the
    /// version is in the path (`…/v1.34.…/…`).
    pub fn parse(text: &str) -> Option<KubernetesVersion> {
        let numbers = if text.contains("://") { &text[text.find("/v1.")? + "/v".len()..] } else { text };
        let numbers = numbers.trim().trim_start_matches('v');
        let core = numbers.split(['-', '+', '/']).next()?;
        let is_pre_release = numbers[core.len()..].starts_with('-');
        let mut parts = core.split('.').map(str::parse::<u64>);
        let major = parts.next()?.ok()?;
        let minor = parts.next()?.ok()?;
        let patch = match parts.next() {
            Some(patch) => patch.ok()?,
            None => 0,
        };
        parts.next().is_none().then(|| KubernetesVersion {
            text: text.to_owned(),
            major,
            minor,
            patch,
            is_pre_release,
        })
    }

    /// Whether this kOps release supports the version: Kubernetes 1, from the release's oldest minor version on.
    pub fn is_supported(&self, release: KopsRelease) -> bool {
        self.major == 1 && self.minor >= release.oldest_kubernetes_minor()
    }

    /// The supported versions, for messages.
    pub fn supported_range(release: KopsRelease) -> String {
        format!(
            "1.{} and newer with kOps {release} (newest known: 1.{})",
            release.oldest_kubernetes_minor(),
            Self::NEWEST_KNOWN_MINOR
        )
    }

    /// The warning about a version that is newer than the newest known version. `None` for a known version.
    pub fn newer_than_known(&self) -> Option<String> {
        (self.major == 1 && self.minor > Self::NEWEST_KNOWN_MINOR).then(|| {
            format!(
                "Kubernetes {self} is newer than this kops-agent knows, so this node is configured as for Kubernetes 1.{}",
                Self::NEWEST_KNOWN_MINOR
            )
        })
    }

    /// Whether the version is the URL of a build, and not a version number.
    pub fn is_base_url(&self) -> bool {
        ["http:", "https:", "memfs:"].iter().any(|scheme| self.text.starts_with(scheme))
    }

    /// The version without a leading `v`, a suffix or the URL of a build.
    pub fn number(&self) -> String {
        format!("{}.{}.{}", self.major, self.minor, self.patch)
    }

    pub fn minor(&self) -> u64 {
        self.minor
    }

    /// Whether the version is an alpha, a beta, a release candidate, or a development build, such as `1.36.0-alpha.1.30+abc`.
    pub fn is_pre_release(&self) -> bool {
        self.is_pre_release
    }

    /// Whether the version is 1.`minor` or newer. A pre-release of 1.`minor` is included.
    fn at_least(&self, minor: u64) -> bool {
        (self.major, self.minor) >= (1, minor)
    }

    /// The release of the CNI plugins for this version; `None` if the kOps release does not support the version.
    pub fn cni_plugins_release(&self, release: KopsRelease) -> Option<&'static str> {
        (self.major == 1).then(|| release.cni_plugins(self.minor))?
    }

    /// Whether kubelet has a setting for the maximum wait before it restarts a failing container (nodeup/pkg/model/kubelet.go,
    /// `buildKubeletConfigSpec`).
    pub fn can_limit_crash_loop_back_off(&self) -> bool {
        self.at_least(35)
    }

    /// Whether components of this version accept a configuration for in-tree cloud providers (nodeup/pkg/model/kubelet.go and
    /// kube_apiserver.go of kOps up to 1.35).
    pub fn has_in_tree_clouds(&self) -> bool {
        !self.at_least(33)
    }

    /// Whether the pod of this version's API server has a liveness probe, but no startup and no readiness probe
    /// (nodeup/pkg/model/kube_apiserver.go of kOps up to 1.35).
    pub fn has_only_a_liveness_probe(&self) -> bool {
        !self.at_least(31)
    }

    /// Whether kubelet of this version refuses to start on cgroups v1, unless its configuration allows cgroups v1 (KEP-5573,
    /// `failCgroupV1`).
    pub fn refuses_cgroups_v1(&self) -> bool {
        self.at_least(35)
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn versions_are_read_in_every_form_that_kops_writes() {
        for (text, minor) in [
            ("1.34.0", 34),
            ("v1.35.2", 35),
            ("1.36.0-rc.1", 36),
            ("1.33", 33),
            ("https://storage.googleapis.com/k8s-release-dev/ci/v1.36.0-alpha.1.30+abc", 36),
            ("https://host/vendor/v1.35.1/", 35),
        ] {
            assert_eq!(KubernetesVersion::parse(text).unwrap().minor(), minor, "{text}");
        }
        for text in ["", "latest", "1.x.3", "1.2.3.4"] {
            assert_eq!(KubernetesVersion::parse(text), None, "{text}");
        }
        for (text, is_pre_release) in [
            ("v1.36.0-rc.1", true),
            ("https://host/ci/v1.36.0-alpha.1.30+abc", true),
            ("1.36.0", false),
            ("1.36.0+build-2", false),
            ("https://host-a/vendor/v1.35.1/a-b", false),
        ] {
            let version = KubernetesVersion::parse(text).unwrap();
            assert_eq!(version.is_pre_release(), is_pre_release, "{text}");
        }
    }

    #[test]
    fn old_versions_are_rejected_and_new_ones_give_a_warning() {
        let read = |text: &str| KubernetesVersion::parse(text).unwrap();
        for refused in ["1.31.14", "1.0.0", "2.34.0", "0.40.0"] {
            assert!(!read(refused).is_supported(KopsRelease::NEWEST), "{refused}");
            assert_eq!(read(refused).newer_than_known(), None, "{refused}");
        }
        for known in ["1.32.0", "1.36.3", "1.36.99"] {
            assert!(read(known).is_supported(KopsRelease::NEWEST), "{known}");
            assert_eq!(read(known).newer_than_known(), None, "{known}");
        }
        for newer in ["1.37.0", "v1.37.0-alpha.1", "1.99.0", "https://host/ci/v1.40.0-beta.0/"] {
            assert!(read(newer).is_supported(KopsRelease::NEWEST), "{newer}");
            let warning = read(newer).newer_than_known().unwrap();
            assert!(warning.contains(newer) && warning.ends_with("as for Kubernetes 1.36"), "{warning}");
        }
    }

    #[test]
    fn a_newer_version_is_treated_as_the_newest_known_one() {
        let (known, newer) = (KubernetesVersion::parse("1.36.0"), KubernetesVersion::parse("1.48.1"));
        let gates = |version: Option<KubernetesVersion>| {
            let version = version.unwrap();
            (
                version.cni_plugins_release(KopsRelease::NEWEST),
                version.can_limit_crash_loop_back_off(),
                version.refuses_cgroups_v1(),
            )
        };
        assert_eq!(gates(newer), gates(known));
    }
}
