//! Checks that a machine of an IPv6-only cluster can get addresses for its pods.
//!
//! Source: nodeup/pkg/model/prefix.go.

use kops_agent_spec::CloudProvider;

use super::Problems;
use super::basis::Basis;

/// Adds a problem if pods have only IPv6 addresses, but the cloud assigns no IPv6 prefix.
pub(super) fn check(basis: &Basis<'_>, problems: &mut Problems) {
    let cloud = basis.boot.cloud_provider;
    let has_prefix = matches!(cloud, CloudProvider::Aws | CloudProvider::Gce | CloudProvider::Metal);
    if basis.is_ipv6_only() && !has_prefix {
        problems.add(
            "Networking.nonMasqueradeCIDR",
            format!("is an IPv6 range; clusters with IPv6 addresses only are not supported on {cloud}"),
        );
    }
}
