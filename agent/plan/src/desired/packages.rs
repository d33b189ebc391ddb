//! Distribution packages that every node needs, and packages that the user adds. A component that needs further packages adds them itself.
//! Distributions with a read-only root get no packages.
//!
//! Source: nodeup/pkg/model/packages.go.

use crate::resolve::{NodeConfig, PackageFormat, Project};
use crate::resource::{DesiredState, Package};

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let distribution = node.distribution;
    let libraries: &[&str] = match distribution.package_format {
        PackageFormat::Deb => &["libapparmor1", "libseccomp2", "util-linux"],
        PackageFormat::Rpm => &["libseccomp", "util-linux"],
        PackageFormat::None => return,
    };
    // SELinux is off on Amazon Linux 2, so container-selinux is not needed there.
    let has_selinux = distribution.is_rhel_family() && distribution.project != Project::AmazonLinux2;
    let kube_proxy = node.config.kube_proxy.as_ref();
    let nftables =
        kube_proxy.is_some_and(|proxy| proxy.enabled == Some(true) && proxy.proxy_mode == "nftables");
    let names = libraries.iter().chain(firewall_packages(node)).chain(tools_of_docker(node)).copied();
    let names = names.chain(has_selinux.then_some("container-selinux"));
    let additional = node.config.packages.iter().map(String::as_str);
    for name in names.chain(nftables.then_some("nftables")).chain(additional) {
        state.add(Package { name: name.into() });
    }
}

/// The packages of `iptables` and `nft`. Up to kOps 1.34, rpm distributions get the package `iptables`, except for Amazon Linux 2023.
fn firewall_packages(node: &NodeConfig) -> &'static [&'static str] {
    let distribution = node.distribution;
    let is_forced = node.release().forces_nftables();
    match distribution.project {
        Project::AmazonLinux2023 => distribution.firewall_packages,
        _ if is_forced || distribution.is_debian_family() => distribution.firewall_packages,
        _ => &["iptables"],
    }
}

/// Packages of tools that containerd 1 and Docker needed. kOps up to 1.34 installs these packages.
fn tools_of_docker(node: &NodeConfig) -> &'static [&'static str] {
    let distribution = node.distribution;
    if !node.release().installs_tools_of_docker() {
        return &[];
    }
    match distribution.project {
        Project::AmazonLinux2 => &["conntrack-tools", "libtool-ltdl"],
        _ if distribution.is_debian_family() => &["bridge-utils", "conntrack", "libltdl7", "pigz"],
        _ => &["conntrack-tools", "libtool-ltdl", "pigz"],
    }
}
