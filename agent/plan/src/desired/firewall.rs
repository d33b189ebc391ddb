//! A host firewall that accepts the cluster's inbound and forwarded packets.
//!
//! Source: nodeup/pkg/model/firewall.go.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, File, Mode, Unit};

use super::unit_file::UnitFile;

const SCRIPT_PATH: &str = "/opt/kops/bin/iptables-setup";

/// Accepts inbound and forwarded TCP, UDP and ICMP packets. Needed if the image's default policy drops
/// packets.
const SCRIPT: &str = r#"#!/bin/bash
if iptables -w -L INPUT | grep "Chain INPUT (policy DROP)" > /dev/null; then
echo "Add rules to accept all inbound TCP/UDP/ICMP packets"
iptables -A INPUT -w -p TCP -j ACCEPT
iptables -A INPUT -w -p UDP -j ACCEPT
iptables -A INPUT -w -p ICMP -j ACCEPT
fi
if iptables -w -L FORWARD | grep "Chain FORWARD (policy DROP)" > /dev/null; then
echo "Add rules to accept all forwarded TCP/UDP/ICMP packets"
iptables -A FORWARD -w -p TCP -j ACCEPT
iptables -A FORWARD -w -p UDP -j ACCEPT
iptables -A FORWARD -w -p ICMP -j ACCEPT
fi
"#;

/// Adds the script, a service that runs it at every boot, and a marker that firewalld is disabled.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    state.add(File::text(SCRIPT_PATH, SCRIPT).mode(Mode::EXECUTABLE));
    state.add(unit("kubernetes-iptables-setup.service", "Configure iptables for kubernetes", SCRIPT_PATH));
    if node.distribution.force_nftables && node.release().forces_nftables() {
        state.add(without_firewalld());
    }
}

/// A service that runs a script at every boot to set firewall rules.
pub(super) fn unit(name: &str, description: &str, script: &str) -> Unit {
    let file = UnitFile::default()
        .set("Unit", "Description", description)
        .set("Unit", "Documentation", "https://github.com/kubernetes/kops")
        .set("Unit", "Before", "network.target")
        .set("Service", "Type", "oneshot")
        .set("Service", "RemainAfterExit", "yes")
        .set("Service", "ExecStart", script)
        .set("Install", "WantedBy", "basic.target");
    Unit::new(name, file.render()).restarted_by_files([script])
}

/// A marker file. When it is created, its commands stop and mask firewalld. firewalld would override the rules of
/// network plugins, and reject packets that the plugins accept. The commands also succeed on machines without
/// firewalld.
fn without_firewalld() -> File {
    File::text(
        "/etc/kops/firewalld-disabled",
        "# kOps stopped firewalld, which would reject packets of pods.\n",
    )
    .on_change(&["bash", "-c", "systemctl disable --now firewalld.service 2>/dev/null; true"])
    .on_change(&["bash", "-c", "systemctl mask firewalld.service 2>/dev/null; true"])
}
