//! Automatic updates. On Debian and Ubuntu, the update policy decides whether the machine updates its
//! packages. Flatcar must not reboot by itself, so the service that reboots it is masked.
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

/// Configures automatic updates on Debian, Ubuntu and Flatcar. Other distributions update only on request.
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

/// Adds the service that masks locksmithd. A user's hook with this unit name replaces the service.
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
