//! Packages of the distribution that a node needs besides those of single components, and those that
//! the user adds. A read-only root has what it needs.
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
    // SELinux is off on Amazon Linux 2.
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

/// The packages that bring `iptables` and `nft`. kOps up to 1.34 takes iptables wherever there is a package of that name.
fn firewall_packages(node: &NodeConfig) -> &'static [&'static str] {
    let distribution = node.distribution;
    let is_forced = node.release().forces_nftables();
    match distribution.project {
        Project::AmazonLinux2023 => distribution.firewall_packages,
        _ if is_forced || distribution.is_debian_family() => distribution.firewall_packages,
        _ => &["iptables"],
    }
}

/// What containerd 1 and Docker asked for. kOps up to 1.34 installs it.
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
