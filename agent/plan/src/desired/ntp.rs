//! Accurate time, by chrony; clouds refuse requests of machines whose clock is minutes off.
//!
//! Source: nodeup/pkg/model/ntp.go.

use crate::resolve::{NodeConfig, PackageFormat};
use crate::resource::{DesiredState, File, Package, Unit};
use kops_agent_spec::CloudProvider;

/// Adds chrony, unless the user manages time or the distribution brings it all.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if node.config.ntp_unmanaged {
        return;
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

/// The cloud's own time server; elsewhere the distribution's configuration stays.
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
