//! Packages of the distribution that a node needs besides those of single components, and those that
//! the user adds. A read-only root has what it needs.
//!
//! Source: nodeup/pkg/model/packages.go.

use crate::resolve::{NodeConfig, PackageFormat};
use crate::resource::{DesiredState, Package};

/// Adds the packages.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let libraries: &[&str] = match node.distribution.package_format {
        PackageFormat::Deb => &["libapparmor1", "libseccomp2", "util-linux"],
        PackageFormat::Rpm => &["container-selinux", "libseccomp", "util-linux"],
        PackageFormat::None => return,
    };
    let kube_proxy = node.config.kube_proxy.as_ref();
    let nftables =
        kube_proxy.is_some_and(|proxy| proxy.enabled == Some(true) && proxy.proxy_mode == "nftables");
    let names = libraries.iter().chain(node.distribution.firewall_packages).copied();
    let additional = node.config.packages.iter().map(String::as_str);
    for name in names.chain(nftables.then_some("nftables")).chain(additional) {
        state.add(Package { name: name.into() });
    }
}
