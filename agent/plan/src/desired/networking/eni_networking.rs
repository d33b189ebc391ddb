//! Settings that stop a distribution from configuring an interface (ENI) that is attached to an EC2
//! instance. The pods' network attaches and configures these interfaces.
//!
//! Source: nodeup/pkg/model/networking/eni_networking.go.

use crate::resolve::{NodeConfig, Project};
use crate::resource::{DesiredState, File};

const RESTART_NETWORKD: &[&str] = &["systemctl", "restart", "systemd-networkd"];

/// Whether the kOps release keeps this distribution's network services from changing attached interfaces. On Debian,
/// only kOps 1.36 and newer do this.
fn is_known(node: &NodeConfig) -> bool {
    node.distribution.project != Project::Debian || node.release().knows_debians_networkd()
}

/// On Amazon Linux, ec2-net-utils assigns an interface's secondary addresses, which are for pods, to the
/// interface itself. The pods' packets then never leave the node. An empty file hides the udev rules that
/// start ec2-net-utils. The commands stop services that started at boot, and undo the changes of these
/// services.
pub(super) fn mask_ec2_net_utils(node: &NodeConfig, state: &mut DesiredState) {
    if node.distribution.project != Project::AmazonLinux2023 {
        return;
    }
    let rules = File::text("/etc/udev/rules.d/99-vpc-policy-routes.rules", "")
        .on_change(&["udevadm", "control", "--reload-rules"])
        .on_change(&["udevadm", "trigger"])
        .on_change(&["bash", "-c", "systemctl stop 'policy-routes@*.service' 'refresh-policy-routes@*.service' 'refresh-policy-routes@*.timer' 2>/dev/null; true"])
        .on_change(&["bash", "-c", "systemctl disable 'policy-routes@*.service' 'refresh-policy-routes@*.timer' 2>/dev/null; true"])
        .on_change(&["bash", "-c", "rm -f /run/systemd/network/*/ec2net_alias.conf"])
        .on_change(RESTART_NETWORKD);
    state.add(rules);
}

/// Without this setting, systemd-networkd removes routes and rules that it did not add.
pub(super) fn keep_foreign_routes(node: &NodeConfig, state: &mut DesiredState) {
    if node.distribution.has_networkd && is_known(node) {
        let configuration = File::text(
            "/usr/lib/systemd/networkd.conf.d/40-disable-manage-foreign-routes.conf",
            "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n",
        );
        state.add(configuration.on_change(RESTART_NETWORKD));
    }
}

/// Without this file, systemd replaces the hardware addresses of virtual interfaces, which the pods'
/// network has already set.
pub(super) fn keep_mac_addresses(node: &NodeConfig, state: &mut DesiredState) {
    if node.distribution.has_networkd && is_known(node) {
        let link = File::text(
            "/etc/systemd/network/99-default.link",
            "[Match]
OriginalName=*

[Link]
NamePolicy=keep kernel database onboard slot path
AlternativeNamesPolicy=database onboard slot path
MACAddressPolicy=none
",
        );
        state.add(link.on_change(RESTART_NETWORKD));
    }
}

/// systemd-networkd requests a DHCP lease on every interface of EC2's driver. Interface names differ between instance
/// families, so this file excludes all interfaces but the primary one. systemd-networkd applies the first file that
/// matches an interface. The number 75 sorts this file after the files for single interfaces, and before the file for
/// all interfaces.
pub(super) fn leave_secondary_interfaces(node: &NodeConfig, state: &mut DesiredState) {
    if let Some(primary) = &node.primary_interface {
        // `INTERFACE` is the interface's single name. A negated `Name=` would match alternative names
        // too.
        let network = File::text(
            "/etc/systemd/network/75-eni-secondary.network",
            format!("[Match]\nDriver=ena\nProperty=!INTERFACE={primary}\n\n[Link]\nUnmanaged=yes\n"),
        );
        state.add(network.on_change(RESTART_NETWORKD));
    } else if node.distribution.project == Project::AmazonLinux2023
        && !node.release().knows_the_primary_interface()
    {
        // kOps up to 1.35 matches interfaces by name, and only on Amazon Linux.
        let network = File::text(
            "/etc/systemd/network/10-eni-secondary.network",
            "[Match]\nName=ens[6-9]* ens[1-9][0-9]*\n\n[Link]\nUnmanaged=yes\n",
        );
        state.add(network.on_change(RESTART_NETWORKD));
    }
}

/// Stops cloud-init from rewriting the network's configuration when an interface is attached
/// (kubernetes/kops#17881).
pub(super) fn disable_cloud_init_hotplug(node: &NodeConfig, state: &mut DesiredState) {
    if node.distribution.has_cloud_init_hotplug && is_known(node) {
        state.add(File::text(
            "/etc/cloud/cloud.cfg.d/99-disable-network-hotplug.cfg",
            "updates:\n  network:\n    when: [boot-new-instance]\n",
        ));
    }
}

/// Debian 11 requests a DHCP lease on every interface named `en*`, including the pods' interfaces named `eni*`, and
/// takes down an interface that gets no lease. This file replaces the udev rule that cloud-init wrote. The
/// replacement lasts, because no package restores that rule.
pub(super) fn narrow_cloud_ifupdown_helper(node: &NodeConfig, state: &mut DesiredState) {
    let distribution = node.distribution;
    if distribution.project == Project::Debian && distribution.version < 12.0 {
        let rule = File::text(
            "/etc/udev/rules.d/75-cloud-ifupdown.rules",
            "SUBSYSTEM==\"net\", ACTION==\"add\", ENV{INTERFACE}==\"eth*|ens*\", RUN+=\"/etc/network/cloud-ifupdown-helper\"\n",
        );
        state.add(rule.on_change(&["udevadm", "control", "--reload-rules"]));
    }
}

/// On RHEL 9, nm-cloud-setup adds routing tables for an interface's secondary addresses, which are for pods.
/// These tables take precedence over the pods' network. The commands disable nm-cloud-setup, and then restart
/// all connections, so that its routing rules disappear. The file makes these commands run only once.
pub(super) fn disable_nm_cloud_setup(node: &NodeConfig, state: &mut DesiredState) {
    let distribution = node.distribution;
    if distribution.project == Project::Rhel && distribution.version >= 9.0 && distribution.version < 10.0 {
        let marker = File::text(
            "/etc/kops/nm-cloud-setup-disabled",
            "# kOps stopped nm-cloud-setup, which would route packets of pods past the network's rules.\n",
        );
        state.add(marker
            .on_change(&["bash", "-c", "systemctl disable --now nm-cloud-setup.service nm-cloud-setup.timer 2>/dev/null; true"])
            .on_change(&["systemctl", "mask", "nm-cloud-setup.service", "nm-cloud-setup.timer"])
            .on_change(&["bash", "-c", "for c in $(nmcli -t -f NAME connection show --active 2>/dev/null); do nmcli connection down \"$c\" 2>/dev/null; nmcli connection up \"$c\" 2>/dev/null; done; true"]));
    }
}
