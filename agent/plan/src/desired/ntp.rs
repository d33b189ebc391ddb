//! Accurate time with chrony. Clouds reject requests from machines whose clock is minutes off.
//!
//! Source: nodeup/pkg/model/ntp.go.

use crate::resolve::{NodeConfig, PackageFormat, Project};
use crate::resource::{DesiredState, File, Package, Unit};
use kops_agent_spec::CloudProvider;

/// Adds chrony or, on some machines, systemd-timesyncd. Adds nothing if the user manages time or the
/// distribution includes a time service.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if node.config.ntp_unmanaged {
        return;
    }
    if uses_timesyncd(node) {
        return add_timesyncd(node, state);
    }
    let (unit, path) = match node.distribution.package_format {
        PackageFormat::Deb => ("chrony.service", "/etc/chrony/chrony.conf"),
        PackageFormat::Rpm => ("chronyd.service", "/etc/chrony.conf"),
        PackageFormat::None => return,
    };
    state.add(Package { name: "chrony".into() });
    match time_server(node.cloud_provider()) {
        Some(server) => {
            state.add(File::text(path, configuration(server)));
            state.add(Unit::existing(unit).restarted_by_files([path]));
        }
        None => state.add(Unit::existing(unit)),
    }
}

/// Whether the machine uses systemd-timesyncd. Up to kOps 1.35, Ubuntu 20.04 uses it, except on Azure and GCE, where
/// chrony works better.
fn uses_timesyncd(node: &NodeConfig) -> bool {
    let is_old_ubuntu = node.distribution.project == Project::Ubuntu && node.distribution.version < 22.0;
    is_old_ubuntu && !matches!(node.cloud_provider(), CloudProvider::Azure | CloudProvider::Gce)
}

fn add_timesyncd(node: &NodeConfig, state: &mut DesiredState) {
    let unit = Unit::existing("systemd-timesyncd.service");
    let path = "/etc/systemd/timesyncd.conf";
    match time_server(node.cloud_provider()) {
        Some(server) => {
            state.add(File::text(path, format!("[Time]\nNTP={server}\n")));
            state.add(unit.restarted_by_files([path]));
        }
        None => state.add(unit),
    }
}

/// The time server of the cloud. `None` if the cloud has no time server; then the distribution's
/// configuration stays unchanged.
fn time_server(cloud: CloudProvider) -> Option<&'static str> {
    match cloud {
        CloudProvider::Aws => Some("169.254.169.123"),
        CloudProvider::Gce => Some("time.google.com"),
        _ => None,
    }
}

fn configuration(server: &str) -> String {
    format!(
        "pool {server} prefer iburst
driftfile /var/lib/chrony/drift
leapsectz right/UTC
logdir /var/log/chrony
makestep 1.0 3
maxupdateskew 100.0
rtcsync
"
    )
}
