//! The releases of third-party software that a kOps release pins, and their download URLs (upstream: `pkg/nodemodel/fileassets.go`,
//! `pkg/nodemodel/wellknownassets/`).
//!
//! If only some kOps releases use a constant, its name contains their version. `kops_agent_spec::kops_release` decides which constant
//! applies, and has the versions that each release pins.

use kops_agent_spec::facts::Architecture;

/// The base URL of Kubernetes releases: `<base>/v<version>/bin/linux/<arch>/<name>`.
pub(super) const KUBERNETES: &str = "https://dl.k8s.io/release";
/// The URL from which kOps downloads GCE's credential provider.
pub(super) const GCP_BINARIES: &str = "https://artifacts.k8s.io/binaries/cloud-provider-gcp/v35.0.0";
/// The URL from which kOps 1.34 downloads GCE's credential provider. kOps 1.34 contains the hashes of this program.
pub(super) const GCP_BINARIES_OF_1_34: &str =
    "https://storage.googleapis.com/k8s-staging-cloud-provider-gcp/auth-provider-gcp";

/// The SHA-256 of GCE's credential provider in kOps 1.34.
pub(super) fn gcp_sha256_of_1_34(arch: Architecture) -> &'static str {
    match arch {
        Architecture::Amd64 => "827d558953d861b81a35c3b599191a73f53c1f63bce42c61e7a3fee21a717a89",
        Architecture::Arm64 => "f1617c0ef77f3718e12a3efc6f650375d5b5e96eebdbcbad3e465e89e781bdfa",
    }
}

/// The URL of the kOps program with this name.
pub(super) fn kops(version: &str, arch: Architecture, name: &str) -> String {
    format!("https://artifacts.k8s.io/binaries/kops/{version}/linux/{arch}/{name}")
}

/// The mirror URL of the kOps program with this name.
pub(super) fn kops_mirror(version: &str, arch: Architecture, name: &str) -> String {
    format!("https://github.com/kubernetes/kops/releases/download/v{version}/{name}-linux-{arch}")
}

/// The URL from which kOps downloads ECR's credential provider.
pub(super) const AWS_BINARIES: &str = "https://artifacts.k8s.io/binaries/cloud-provider-aws/v1.31.7";
const NERDCTL: &str = "1.7.4";
const CRICTL: &str = "1.29.0";
/// The oldest runc that kOps installs.
pub(super) const OLDEST_RUNC: Release = Release::new(1, 1, 0);

pub(super) fn cni_plugins(version: &str, arch: &str) -> String {
    format!(
        "https://github.com/containernetworking/plugins/releases/download/v{version}/cni-plugins-linux-{arch}-v{version}.tgz"
    )
}

pub(super) fn containerd(version: &str, arch: &str) -> String {
    format!(
        "https://github.com/containerd/containerd/releases/download/v{version}/containerd-{version}-linux-{arch}.tar.gz"
    )
}

pub(super) fn runc(version: &str, arch: &str) -> String {
    format!("https://github.com/opencontainers/runc/releases/download/v{version}/runc.{arch}")
}

pub(super) fn nerdctl(arch: &str) -> String {
    format!(
        "https://github.com/containerd/nerdctl/releases/download/v{NERDCTL}/nerdctl-{NERDCTL}-linux-{arch}.tar.gz"
    )
}

pub(super) fn crictl(arch: &str) -> String {
    format!(
        "https://github.com/kubernetes-sigs/cri-tools/releases/download/v{CRICTL}/crictl-v{CRICTL}-linux-{arch}.tar.gz"
    )
}

/// A release version, ordered by semantic versioning: a pre-release comes before its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Release {
    numbers: [u64; 3],
    is_final: bool,
}

impl Release {
    pub(super) const fn new(major: u64, minor: u64, patch: u64) -> Release {
        Release { numbers: [major, minor, patch], is_final: true }
    }

    /// Reads a version such as `2.1.4`. Accepts a leading `v` and missing numbers, as upstream does.
    pub(super) fn parse(text: &str) -> Option<Release> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let (text, _build) = text.split_once('+').unwrap_or((text, ""));
        let (core, pre_release) = match text.split_once('-') {
            Some((core, pre_release)) => (core, Some(pre_release)),
            None => (text, None),
        };
        let mut numbers = [0; 3];
        let parts: Vec<&str> = core.split('.').collect();
        if parts.len() > numbers.len() {
            return None;
        }
        for (number, part) in numbers.iter_mut().zip(parts) {
            *number = part.parse().ok()?;
        }
        Some(Release { numbers, is_final: pre_release.is_none() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_pre_release_is_older_than_its_release() {
        let parse = |text: &str| Release::parse(text).unwrap();
        let oldest = Release::new(2, 1, 0);
        assert!(parse("2.1.0-rc.1") < oldest);
        assert!(parse("v2.1") == oldest);
        assert!(parse("2.10.0") > parse("2.9.9"));
        assert!(parse("1.7.28+build-1") < oldest);
        for text in ["", "latest", "1.2.3.4", "1..2"] {
            assert_eq!(Release::parse(text), None, "{text}");
        }
    }
}
