//! Rotation of Kubernetes' log files, every hour.
//!
//! Source: nodeup/pkg/model/logrotate.go.

use crate::resolve::{NodeConfig, PackageFormat, Project};
use crate::resource::{DesiredState, File, Package, Unit};

use super::paths;
use super::unit_file::UnitFile;

const LOGS: [&str; 9] = [
    "docker",
    "etcd",
    "etcd-events",
    "kube-addons",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubelet",
];

/// Adds a logrotate rule for each log, and a timer that starts logrotate. Container-Optimized OS rotates its logs
/// itself.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let distribution = node.distribution;
    if distribution.project == Project::ContainerOS {
        return;
    }
    let leases = node.release().has_etcd_leases().then_some("etcd-leases");
    let cilium = node.config.use_cilium_etcd.then_some("etcd-cilium");
    for log in LOGS.into_iter().chain(leases).chain(cilium) {
        state.add(File::text(format!("/etc/logrotate.d/{log}"), rule(log, distribution.project)));
    }
    // Distributions with a read-only root include logrotate and its service.
    if distribution.package_format != PackageFormat::None {
        state.add(Package { name: "logrotate".into() });
        let service = UnitFile::default().set("Unit", "Description", "Rotate and Compress System Logs").set(
            "Service",
            "ExecStart",
            "/usr/sbin/logrotate /etc/logrotate.conf",
        );
        state.add(Unit::new("logrotate.service", service.render()));
    }
    // The timer replaces the distribution's daily timer of the same name.
    let timer = UnitFile::default().set("Unit", "Description", "Hourly Log Rotation").set(
        "Timer",
        "OnCalendar",
        "hourly",
    );
    state.add(Unit::new("logrotate.timer", timer.render()));
}

fn rule(log: &str, project: Project) -> String {
    // Flatcar names rotated files only by date. So a second rotation on the same day would fail, because the
    // file exists.
    let date_format = if project == Project::Flatcar { "  dateformat -%Y%m%d-%s\n" } else { "" };
    format!(
        "{}{{\n  rotate 5\n  copytruncate\n  missingok\n  notifempty\n  delaycompress\n  maxsize 100M\n{date_format}  daily\n  create 0644 root root\n}}\n",
        paths::log(log)
    )
}
