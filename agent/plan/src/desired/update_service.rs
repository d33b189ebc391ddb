//! Whether a machine updates itself: packages on Debian and Ubuntu, as the update policy says. Flatcar
//! must not reboot at will, so the service that does it is switched off.
//!
//! Source: nodeup/pkg/model/update_service.go.

use crate::resolve::{NodeConfig, PackageFormat, Project};
use crate::resource::{DesiredState, File, Package, Unit};

use super::unit_file::UnitFile;

const UPGRADE_UNATTENDED: &str = r#"APT::Periodic::Update-Package-Lists "1";
APT::Periodic::Unattended-Upgrade "1";

APT::Periodic::AutocleanInterval "7";
"#;

const UPGRADE_NOTHING: &str = "APT::Periodic::Enable \"0\";\n";

const FLATCAR_SERVICE: &str = "update-service.service";

/// Adds what the distribution needs; others update only when told to.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    match (node.distribution.project, node.distribution.package_format) {
        (Project::Flatcar, _) => add_flatcar_service(node, state),
        (_, PackageFormat::Deb) => add_apt_configuration(node, state),
        _ => {}
    }
}

fn add_apt_configuration(node: &NodeConfig, state: &mut DesiredState) {
    let configuration = if node.updates_itself {
        state.add(Package { name: "unattended-upgrades".into() });
        UPGRADE_UNATTENDED
    } else {
        UPGRADE_NOTHING
    };
    state.add(File::text("/etc/apt/apt.conf.d/20auto-upgrades", configuration));
}

/// A hook of the same name takes the service's place.
fn add_flatcar_service(node: &NodeConfig, state: &mut DesiredState) {
    if node.hooks.iter().any(|hook| hook.unit == FLATCAR_SERVICE) {
        return;
    }
    let service = UnitFile::default()
        .set("Unit", "Description", "Disable OS Update Scheduler")
        .set("Unit", "Before", "locksmithd.service")
        .set("Service", "Type", "oneshot")
        .set("Service", "ExecStart", "/usr/bin/systemctl mask --now locksmithd.service");
    state.add(Unit::new(FLATCAR_SERVICE, service.render()));
}
