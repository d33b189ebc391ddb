//! Versions of containerd, and properties that depend on them.

/// A version of containerd as users write it: `2.1.4`, `v2.3.0-rc.1`, `2.2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerdVersion {
    major: u64,
    minor: u64,
    patch: u64,
    is_pre_release: bool,
}

impl ContainerdVersion {
    /// Parses a version. A leading `v` and missing parts are allowed.
    pub fn parse(text: &str) -> Option<ContainerdVersion> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let release = text.split('+').next()?;
        let (core, is_pre_release) = match release.split_once('-') {
            Some((core, _)) => (core, true),
            None => (release, false),
        };
        let mut parts = core.split('.').map(|part| part.parse::<u64>().ok());
        let major = parts.next()??;
        let minor = parts.next().unwrap_or(Some(0))?;
        let patch = parts.next().unwrap_or(Some(0))?;
        parts.next().is_none().then_some(ContainerdVersion { major, minor, patch, is_pre_release })
    }

    /// Whether the version is 1.x.
    pub fn is_before_2(&self) -> bool {
        self.major < 2
    }

    /// Whether the release's default archive needs glibc 2.34 or later. Such an archive is built on Ubuntu 22.04 ("Which file should I
    /// download?" in the notes of releases 2.0 and 2.1).
    pub(super) fn needs_glibc_2_34(&self) -> bool {
        (self.major, self.minor) >= (2, 1)
    }

    /// The version that containerd's configuration file must declare (`containerdConfigVersion` in nodeup/pkg/model/containerd.go). Since
    /// 2.3.0, a drop-in such as NVIDIA's may declare version 4. If the main file declares an older version, containerd rejects the drop-in.
    /// containerd 1, which kOps up to 1.36 can install, reads only version 2.
    pub fn config_version(&self) -> i64 {
        let is_2_3 = (self.major, self.minor, self.patch) > (2, 3, 0)
            || (self.major, self.minor, self.patch) == (2, 3, 0) && !self.is_pre_release;
        match self.major {
            ..2 => CONFIG_VERSION_OF_1,
            _ if is_2_3 => 4,
            _ => OLDEST_CONFIG_VERSION_OF_2,
        }
    }

    /// A known fault of this version. `None` if no fault is known. kOps itself chooses no version with a fault
    /// (pkg/model/components/containerd.go).
    pub fn known_fault(&self) -> Option<String> {
        let is_faulty = (self.major, self.minor) == (2, 3) && self.patch < 4;
        is_faulty.then(|| {
            format!(
                "containerd {}.{}.{} does not find a sandbox image that is pinned by its digest; use 2.3.4 or newer",
                self.major, self.minor, self.patch
            )
        })
    }
}

/// The configuration version of containerd 1, which cannot read a newer version. A file of this version has one plugin for Kubernetes, not
/// two.
pub(crate) const CONFIG_VERSION_OF_1: i64 = 2;
/// The version of the configuration file for a containerd 2 that cannot read a newer file version, or whose own exact version is unknown.
pub(super) const OLDEST_CONFIG_VERSION_OF_2: i64 = 3;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn config_version(text: &str) -> Option<i64> {
        ContainerdVersion::parse(text).map(|version| version.config_version())
    }

    #[test]
    fn each_containerd_gets_a_configuration_version_that_it_reads() {
        for (text, version) in [
            ("2.3.4", 4),
            ("v2.3.0", 4),
            ("2.3", 4),
            ("2.10.0", 4),
            ("3", 4),
            ("2.3.0-rc.1", 3),
            ("2.3.1-rc.1", 4),
            ("2.2.9", 3),
            ("1.7.29", 2),
            ("1.6", 2),
        ] {
            assert_eq!(config_version(text), Some(version), "{text}");
        }
    }

    #[test]
    fn kops_avoids_the_first_releases_of_2_3() {
        for (text, is_faulty) in [("2.3.0", true), ("2.3.3", true), ("2.3.4", false), ("2.2.1", false)] {
            assert_eq!(ContainerdVersion::parse(text).unwrap().known_fault().is_some(), is_faulty, "{text}");
        }
    }

    #[test]
    fn malformed_versions_are_rejected() {
        for text in ["", "latest", "2.x", "2.1.0.1"] {
            assert_eq!(config_version(text), None, "{text}");
        }
    }
}
