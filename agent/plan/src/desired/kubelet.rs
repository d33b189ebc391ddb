//! kubelet: Kubernetes' agent on every node. kubelet's settings are in a configuration file, or in flags if the file has no field for a
//! setting.
//!
//! Source: nodeup/pkg/model/kubelet.go.

mod configuration;
mod credential_provider;
mod daemon_flags;
mod reserved_cgroups;
mod settings_as_flags;
mod shutdown;
mod slices;
#[cfg(test)]
mod tests;

use crate::resolve::{KUBERNETES_CA, NodeConfig};
use crate::resource::{CertificateType, Content, DesiredState, Directory, File, Mode, Unit};
use kops_agent_spec::go_yaml;

use super::environment_file::variable;
use super::unit_file::{UnitFile, command_line};
use super::{certificates, paths};
pub(super) use slices::slice;

/// Adds kubelet with its configuration, its kubeconfig and its serving certificate.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let kubelet = &node.kubelet;
    let program = paths::kubelet(node.distribution);
    state.add(File::new(&program, kubelet.program.content()).mode(Mode::EXECUTABLE));
    state.add(Directory::new(paths::KUBELET));
    let configuration = match node.release().kubelet_settings_are_flags() {
        true => go_yaml::to_string(&settings_as_flags::configuration(node)),
        false => go_yaml::to_string(&configuration::configuration(node)),
    };
    state.add(File::text(paths::KUBELET_CONFIG, configuration));
    state.keeps_data_in(&kubelet.config.root_dir);
    state.add(File::text(paths::KUBELET_SYSCONFIG, sysconfig(node)));
    if !kubelet.config.pod_manifest_path.is_empty() {
        state.add(Directory::new(kubelet.config.pod_manifest_path.trim_end_matches('/')));
    }
    if !node.config.uses_kubenet {
        state.add(Directory::new(paths::CNI_CONF));
    }
    add_serving_certificate(node, state);
    let kubeconfig = kubeconfig(node, state);
    state.add(File::new(paths::KUBELET_KUBECONFIG, kubeconfig).mode(Mode(0o400)));
    credential_provider::add(node, state);
    for cgroup in
        [&kubelet.config.kubelet_cgroups, &kubelet.config.runtime_cgroups, &kubelet.config.system_cgroups]
    {
        slices::add(cgroup, state);
    }
    reserved_cgroups::add(&kubelet.reserved_cgroups, state);
    shutdown::add(kubelet.config.shutdown_grace_period, state);
    state.add(unit(node, &program));
}

fn sysconfig(node: &NodeConfig) -> String {
    // `HOME` is set because kubelet looks for Docker's credentials in the home directory.
    let flags = match node.release().kubelet_settings_are_flags() {
        true => settings_as_flags::flags(node),
        false => daemon_flags::flags(node).into_sorted(),
    };
    variable("DAEMON_ARGS", &command_line(&flags)) + &variable("HOME", "/root")
}

/// kubelet's kubeconfig, which authenticates as this node.
fn kubeconfig(node: &NodeConfig, state: &mut DesiredState) -> Content {
    let subject = certificates::user_in_group(&format!("system:node:{}", node.node_name), "system:nodes");
    certificates::node_kubeconfig(state, node, "kubelet", subject)
}

/// Adds the certificate that kubelet's server presents to the API server.
fn add_serving_certificate(node: &NodeConfig, state: &mut DesiredState) {
    let own_names = &node.kubelet.serving_names;
    let (common_name, names) = match node.has_api_server() {
        true => (own_names.first().map_or("", String::as_str), own_names.clone()),
        // The bootstrap server takes the certificate's names from the cloud, and ignores names that the machine claims. The subject is the
        // Node's name (cmd/kops-controller/pkg/server/server.go, `issueCert`).
        false => (node.node_name.as_str(), Vec::new()),
    };
    state.add(certificates::of_every_node(
        node,
        paths::KUBELET_SERVER,
        KUBERNETES_CA,
        CertificateType::Server,
        certificates::user(common_name),
        names,
    ));
    state.add(Directory::new(node.distribution.srv_kubernetes));
    let key_mode = match node.has_api_server() && node.release().lets_root_write_kubelets_key() {
        true => Mode::PRIVATE,
        false => Mode(0o400),
    };
    state.add(File::new(
        paths::kubelet_server_certificate(node.distribution),
        Content::Certificate(paths::KUBELET_SERVER.into()),
    ));
    state.add(
        File::new(
            paths::kubelet_server_key(node.distribution),
            Content::PrivateKey(paths::KUBELET_SERVER.into()),
        )
        .mode(key_mode),
    );
}

/// kubelet's unit. A new serving certificate does not restart kubelet, because kubelet reloads the certificate.
fn unit(node: &NodeConfig, program: &str) -> Unit {
    let mut file = UnitFile::default()
        .set("Unit", "Description", "Kubernetes Kubelet Server")
        .set("Unit", "Documentation", "https://github.com/kubernetes/kubernetes")
        .set("Unit", "After", "containerd.service")
        .set("Service", "EnvironmentFile", paths::KUBELET_SYSCONFIG)
        .set("Service", "ExecStart", format!("{program} \"$DAEMON_ARGS\""))
        .set("Service", "Restart", "always")
        .set("Service", "RestartSec", "2s")
        .set("Service", "StartLimitInterval", "0")
        .set("Service", "KillMode", "process")
        .set("Service", "User", "root")
        .set("Service", "CPUAccounting", "true")
        .set("Service", "MemoryAccounting", "true")
        .set("Install", "WantedBy", "multi-user.target");
    if let Some(slice) = slice(&node.kubelet.config.kubelet_cgroups) {
        file = file.set("Service", "Slice", slice);
    }
    let read_at_start = [
        program,
        paths::KUBELET_SYSCONFIG,
        paths::KUBELET_CONFIG,
        paths::KUBELET_KUBECONFIG,
        paths::KUBELET_CREDENTIAL_PROVIDER_CONFIG,
    ];
    let unit = Unit::new("kubelet.service", file.render()).restarted_by_files(read_at_start);
    let joins_now = !node.is_warming();
    Unit { enabled: joins_now, running: joins_now, ..unit }
}
