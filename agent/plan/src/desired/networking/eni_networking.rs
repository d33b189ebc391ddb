//! What distributions do by themselves when an interface (ENI) is attached to an EC2 instance, and how
//! to keep them from it where the pods' network attaches and configures them.
//!
//! Source: nodeup/pkg/model/networking/eni_networking.go.

use crate::resolve::{NodeConfig, Project};
use crate::resource::{DesiredState, File};

const RESTART_NETWORKD: &[&str] = &["systemctl", "restart", "systemd-networkd"];

/// Whether kOps' release knows what this distribution does to an attached interface.
fn is_known(node: &NodeConfig) -> bool {
    node.distribution.project != Project::Debian || node.release().knows_debians_networkd()
}

/// Amazon Linux puts an interface's further addresses, those of pods, on the interface itself, and
/// their packets then never leave the node. An empty file hides the rules that start it; what was
/// started at boot is stopped, and what it has done is undone.
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

/// systemd-networkd removes routes and rules that are not its own.
pub(super) fn keep_foreign_routes(node: &NodeConfig, state: &mut DesiredState) {
    if node.distribution.has_networkd && is_known(node) {
        let configuration = File::text(
            "/usr/lib/systemd/networkd.conf.d/40-disable-manage-foreign-routes.conf",
            "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n",
        );
        state.add(configuration.on_change(RESTART_NETWORKD));
    }
}

/// systemd gives virtual interfaces hardware addresses of its own making, which the pods' network
/// has set already.
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

/// systemd-networkd asks for a lease on every interface of EC2's driver. Names differ between instance
/// families, so all but the primary one are left alone; the file's number puts it behind those of
/// single interfaces, which go first for the primary one, and before the one for all.
pub(super) fn leave_secondary_interfaces(node: &NodeConfig, state: &mut DesiredState) {
    if let Some(primary) = &node.primary_interface {
        // INTERFACE is the one name; a negated `Name=` would match alternative names, too.
        let network = File::text(
            "/etc/systemd/network/75-eni-secondary.network",
            format!("[Match]\nDriver=ena\nProperty=!INTERFACE={primary}\n\n[Link]\nUnmanaged=yes\n"),
        );
        state.add(network.on_change(RESTART_NETWORKD));
    } else if node.distribution.project == Project::AmazonLinux2023
        && !node.release().knows_the_primary_interface()
    {
        // kOps up to 1.35 goes by the names of interfaces, on Amazon Linux alone.
        let network = File::text(
            "/etc/systemd/network/10-eni-secondary.network",
            "[Match]\nName=ens[6-9]* ens[1-9][0-9]*\n\n[Link]\nUnmanaged=yes\n",
        );
        state.add(network.on_change(RESTART_NETWORKD));
    }
}

/// cloud-init writes the network's configuration anew when an interface is attached
/// (kubernetes/kops#17881).
pub(super) fn disable_cloud_init_hotplug(node: &NodeConfig, state: &mut DesiredState) {
    if node.distribution.has_cloud_init_hotplug && is_known(node) {
        state.add(File::text(
            "/etc/cloud/cloud.cfg.d/99-disable-network-hotplug.cfg",
            "updates:\n  network:\n    when: [boot-new-instance]\n",
        ));
    }
}

/// Debian 11 asks for a lease on everything named `en*`, pods' ends named `eni*` among it, and takes
/// them down when none comes. cloud-init wrote the rule, so no package will write it again.
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

/// RHEL 9 routes an interface's further addresses, those of pods, by tables of its own that go before
/// the network's. The file marks that the service has been stopped for good; connections are taken
/// down and up again so that its rules go as well.
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
