//! containerd, which runs the containers of every node. If a distribution includes containerd, only
//! its configuration is added. On other distributions, a containerd release and runc are installed.
//!
//! Source: nodeup/pkg/model/containerd.go.

mod config_file;
mod kubenet;
mod registry_hosts;
#[cfg(test)]
mod tests;

use crate::resolve::{ContainerdRelease, NodeConfig, Project};
use crate::resource::{ArchiveKind, Content, DesiredState, File, Mode, Unit};
use kops_agent_spec::ContainerdConfig;

use super::environment_file::variable;
use super::flags::Flags;
use super::kubelet::slice;
use super::paths;
use super::unit_file::{UnitFile, command_line};

/// containerd's licence must accompany its binaries.
const LICENSE: &str = include_str!("containerd/license.txt");

const PROGRAM: &str = "/usr/bin/containerd";
const DROP_IN: &str = "/etc/systemd/system/containerd.service.d/10-kops.conf";
const RUNC: &str = "/usr/sbin/runc";

/// Adds containerd and its configuration, unless `skipInstall` leaves the installation to the user.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if node.containerd().skip_install {
        return;
    }
    if node.config.uses_kubenet {
        kubenet::add(node, state);
    }
    registry_hosts::add(node, state);
    let config = config_file::file(node);
    if let Content::Text(text) = &config.content {
        config_file::data_folders(text).iter().for_each(|folder| state.keeps_data_in(folder));
    }
    state.add(config);
    if let Some(platform) = &node.container_runtime.gvisor_platform {
        state.add(gvisor_shim_config(platform));
    }
    match &node.container_runtime.release {
        Some(release) => add_release(node, release, state),
        None => {
            state.add(drop_in(node));
            // containerd reads these two files only when it starts.
            state.add(
                Unit::existing("containerd.service").restarted_by_files([DROP_IN, paths::CONTAINERD_CONFIG]),
            );
        }
    }
}

fn add_release(node: &NodeConfig, release: &ContainerdRelease, state: &mut DesiredState) {
    state.add(File::text("/usr/share/doc/containerd/apache.txt", LICENSE));
    if let (None, Some(sha256)) = (&release.archive.files, &release.archive.sha256) {
        state.assumes_files_of(sha256, ArchiveKind::Containerd);
    }
    for program in &release.programs {
        let path = format!("/usr/bin/{}", program.name);
        state.add(File::new(path, program.content.clone()).mode(Mode::EXECUTABLE));
    }
    state.add(File::new(RUNC, release.runc.clone()).mode(Mode::EXECUTABLE));
    // With this file, crictl finds containerd's socket without a flag.
    state.add(File::text("/etc/crictl.yaml", "runtime-endpoint: unix:///run/containerd/containerd.sock\n"));
    state.add(File::text(
        paths::CONTAINERD_SYSCONFIG,
        variable("CONTAINERD_OPTS", &command_line(&flags(node))),
    ));
    for folder in [&node.containerd().root, &node.containerd().state] {
        state.keeps_data_in(folder.as_deref().unwrap_or_default());
    }
    state.add(unit(node));
}

fn flags(node: &NodeConfig) -> Vec<String> {
    let ContainerdConfig {
        address,
        log_level,
        root,
        state,
        // These settings are in the configuration file.
        config_additions: _,
        config_override: _,
        registry_mirrors: _,
        selinux_enabled: _,
        nri: _,
        sandbox_image: _,
        // These settings come from `NvidiaGPU` and `GVisor` in nodeup's configuration.
        nvidia_gpu: _,
        gvisor: _,
        // These settings choose the programs to install.
        skip_install: _,
        version: _,
        packages: _,
        runc: _,
        install_cri_ctl: _,
        install_nerd_ctl: _,
        // This setting is for kubelet's credential provider.
        use_ecr_credentials_for_mirrors: _,
    } = node.containerd();
    let mut flags = Flags::default();
    flags.set("address", address);
    flags.set("log-level", log_level);
    flags.set("root", root);
    flags.set("state", state);
    flags.into_sorted()
}

/// containerd's unit. A change of runc or of a shim does not restart containerd, because each container starts its own
/// runc and shim.
fn unit(node: &NodeConfig) -> Unit {
    let mut file = UnitFile::default()
        .set("Unit", "Description", "containerd container runtime")
        .set("Unit", "Documentation", "https://containerd.io")
        .set("Unit", "After", "network.target dbus.service");
    if node.distribution.is_rhel_family() && node.containerd().selinux_enabled {
        // Programs from an archive have no SELinux label, so `restorecon` sets their labels.
        file = file.set("Service", "ExecStartPre", format!("/bin/sh -c 'restorecon -v {RUNC}'")).set(
            "Service",
            "ExecStartPre",
            format!("/bin/sh -c 'restorecon -v {PROGRAM}*'"),
        );
    }
    file = file
        .set("Service", "EnvironmentFile", paths::CONTAINERD_SYSCONFIG)
        .set("Service", "EnvironmentFile", paths::ENVIRONMENT)
        .set("Service", "ExecStartPre", "-/sbin/modprobe overlay")
        .set(
            "Service",
            "ExecStart",
            format!("{PROGRAM} -c {} \"$CONTAINERD_OPTS\"", paths::CONTAINERD_CONFIG),
        )
        .set("Service", "Type", "notify")
        // systemd must neither manage the containers' cgroups nor stop the containers when containerd restarts.
        .set("Service", "Delegate", "yes")
        .set("Service", "KillMode", "process")
        .set("Service", "Restart", "always")
        .set("Service", "RestartSec", "5")
        .set("Service", "LimitNPROC", "infinity")
        .set("Service", "LimitCORE", "infinity")
        .set("Service", "LimitNOFILE", "1048576")
        .set("Service", "TasksMax", "infinity")
        // When memory runs out, the kernel must kill pods before containerd.
        .set("Service", "OOMScoreAdjust", "-999")
        .set("Install", "WantedBy", "multi-user.target");
    if let Some(slice) = slice(&node.kubelet.config.runtime_cgroups) {
        file = file.set("Service", "Slice", slice);
    }
    Unit::new("containerd.service", file.render()).restarted_by_files([
        PROGRAM,
        paths::CONTAINERD_SYSCONFIG,
        paths::CONTAINERD_CONFIG,
    ])
}

/// The drop-in that makes the distribution's containerd read kops-agent's configuration file.
fn drop_in(node: &NodeConfig) -> File {
    let mut file = UnitFile::default().set("Service", "EnvironmentFile", paths::ENVIRONMENT);
    file = match node.distribution.project {
        Project::ContainerOS => file.set("Service", "TasksMax", "infinity"),
        _ => file.set("Service", "ExecStart", "").set(
            "Service",
            "ExecStart",
            format!("{PROGRAM} --config {}", paths::CONTAINERD_CONFIG),
        ),
    };
    File::text(DROP_IN, file.render())
        .on_change(&["systemctl", "daemon-reload"])
        .on_change(&["systemctl", "restart", "containerd.service"])
        // Restarts kops-agent's own unit in the background. kops-agent skips this command when it applies the
        // file itself, because the run that changed the file continues to converge the node.
        .on_change(&["systemctl", "restart", "kops-configuration.service", "&"])
}

/// gVisor's shim reads this file when it starts a container.
fn gvisor_shim_config(platform: &str) -> File {
    let platform = toml::Value::String(platform.to_owned());
    File::text("/etc/containerd/runsc.toml", format!("[runsc_config]\nplatform = {platform}\n"))
}
