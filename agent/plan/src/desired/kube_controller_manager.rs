//! kube-controller-manager: a static pod on every control-plane machine. It signs certificates and tokens for
//! the cluster, so it gets the keypairs for both.
//!
//! Source: nodeup/pkg/model/kube_controller_manager.go.

use crate::resolve::{KUBERNETES_CA, NodeConfig};
use crate::resource::{DesiredState, File, Mode};
use kops_agent_spec::KubeControllerManagerConfig;

use super::flags::{FlagValue, Flags};
use super::pod::{Access, Container, Critical, Pod, Resources, logged_command, proxy_env};
use super::{certificates, paths, serving};

const NAME: &str = "kube-controller-manager";
const HOME: &str = "/var/lib/kube-controller-manager";
const KUBECONFIG: &str = "/var/lib/kube-controller-manager/kubeconfig";

/// Adds kube-controller-manager on a control-plane machine.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let Some(control_plane) = node.control_plane() else { return };
    let config = &control_plane.kube_controller_manager;

    let subject = certificates::user("system:kube-controller-manager");
    let kubeconfig = certificates::issued_kubeconfig(state, node, NAME, subject);
    state.add(File::new(KUBECONFIG, kubeconfig).mode(Mode(0o400)));
    state.add(File::text(paths::log(NAME), "").mode(Mode(0o400)).create_only());
    state.add(certificates::certificate_file(node, KUBERNETES_CA, &file(node, "ca.crt")));
    state.add(certificates::private_key_file(node, KUBERNETES_CA, &file(node, "ca.key")));
    state.add(certificates::private_key_file(node, "service-account", &file(node, "service-account.key")));
    if config.tls_cert_file.is_none() {
        serving::add_certificate(node, NAME, state);
    }
    state.add(pod(node, config).manifest_file());
}

/// The path of a file in kube-controller-manager's own directory of keys and certificates.
fn file(node: &NodeConfig, name: &str) -> String {
    format!("{}/{name}", directory(node))
}

fn directory(node: &NodeConfig) -> String {
    node.srv_kubernetes(NAME)
}

fn pod(node: &NodeConfig, config: &KubeControllerManagerConfig) -> Pod {
    let mut pod = Pod::new(node, NAME, Critical::Cluster);
    let program = "/usr/local/bin/kube-controller-manager";
    let (command, args) = logged_command(NAME, program, flags(node, config));
    let mut container = Container {
        name: NAME.into(),
        image: node.image(&config.image),
        command,
        args,
        env: proxy_env(node),
        liveness_probe: Some(serving::liveness_probe(10257)),
        resources: resources(config),
        ..Container::default()
    };
    pod.mount(&mut container, "logfile", &paths::log(NAME), Access::ReadWrite);
    pod.mount_ssl_directories(node, &mut container);
    if node.release().has_in_tree_cloud_config() {
        pod.mount(&mut container, "cloudconfig", paths::IN_TREE_CLOUD_CONFIG, Access::ReadOnly);
    }
    pod.mount(&mut container, "cabundle", &paths::kubernetes_ca(node.distribution), Access::ReadOnly);
    pod.mount(&mut container, "srvkcm", &directory(node), Access::ReadOnly);
    pod.mount(&mut container, "varlibkcm", HOME, Access::ReadOnly);
    // A DaemonSet installs volume plugins here, for this pod and for kubelet.
    pod.mount(&mut container, "volplugins", volume_plugin_directory(node), Access::ReadWrite);
    pod.spec.containers.push(container);
    pod
}

fn volume_plugin_directory(node: &NodeConfig) -> &str {
    &node.kubelet.config.volume_plugin_directory
}

fn resources(config: &KubeControllerManagerConfig) -> Resources {
    Resources::of_component(
        config.cpu_request.as_ref(),
        "100m",
        config.cpu_limit.as_ref(),
        config.memory_request.as_ref(),
        config.memory_limit.as_ref(),
    )
}

fn flags(node: &NodeConfig, config: &KubeControllerManagerConfig) -> Vec<String> {
    let mut flags = Flags::default();
    add_api_server_flags(&mut flags, config);
    add_signing_flags(&mut flags, node, config);
    add_serving_flags(&mut flags, node, config);
    add_node_flags(&mut flags, config);
    add_workload_flags(&mut flags, config);
    flags.set("flex-volume-plugin-dir", volume_plugin_directory(node));
    flags.set_leader_election(config.leader_election.as_ref());
    flags.set("controllers", &config.controllers);
    flags.set("enable-leader-migration", &config.enable_leader_migration);
    flags.set("feature-gates", &config.feature_gates);
    flags.set_unless("logging-format", &config.log_format, "text");
    if node.release().has_in_tree_cloud_config() {
        flags.set("cloud-config", paths::IN_TREE_CLOUD_CONFIG);
    }
    flags.set("min-resync-period", &config.min_resync_period);
    flags.set("use-service-account-credentials", &config.use_service_account_credentials);
    flags.set_unless("v", &config.log_level, "0");
    flags.into_sorted()
}

fn add_api_server_flags(flags: &mut Flags, config: &KubeControllerManagerConfig) {
    flags.set("authentication-kubeconfig", KUBECONFIG);
    flags.set("authorization-always-allow-paths", &config.authorization_always_allow_paths);
    flags.set("authorization-kubeconfig", KUBECONFIG);
    flags.set("kube-api-burst", &config.kube_api_burst);
    flags.set("kube-api-qps", &config.kube_api_qps);
    flags.set("kubeconfig", KUBECONFIG);
    flags.set("master", &config.master);
}

fn add_signing_flags(flags: &mut Flags, node: &NodeConfig, config: &KubeControllerManagerConfig) {
    flags.set("cluster-signing-cert-file", &file(node, "ca.crt"));
    flags.set("cluster-signing-duration", &config.cluster_signing_duration);
    flags.set("cluster-signing-key-file", &file(node, "ca.key"));
    flags.set("experimental-cluster-signing-duration", &config.experimental_cluster_signing_duration);
    flags.set("root-ca-file", &paths::kubernetes_ca(node.distribution));
    flags.set("service-account-private-key-file", &file(node, "service-account.key"));
}

fn add_serving_flags(flags: &mut Flags, node: &NodeConfig, config: &KubeControllerManagerConfig) {
    flags.set("contention-profiling", &config.enable_contention_profiling);
    flags.set("profiling", &config.enable_profiling);
    match &config.tls_cert_file {
        Some(certificate_file) => {
            flags.set("tls-cert-file", certificate_file);
            flags.set("tls-private-key-file", &config.tls_private_key_file);
        }
        None => {
            flags.set("tls-cert-file", &file(node, "server.crt"));
            flags.set("tls-private-key-file", &file(node, "server.key"));
        }
    }
    flags.set("tls-cipher-suites", &config.tls_cipher_suites);
    flags.set("tls-min-version", &config.tls_min_version);
}

fn add_node_flags(flags: &mut Flags, config: &KubeControllerManagerConfig) {
    flags.set("allocate-node-cidrs", &config.allocate_node_cidrs);
    flags.set("cidr-allocator-type", &config.cidr_allocator_type);
    flags.set("cloud-provider", &config.cloud_provider);
    flags.set("cluster-cidr", &config.cluster_cidr);
    flags.set("cluster-name", &config.cluster_name);
    flags.set("configure-cloud-routes", &config.configure_cloud_routes);
    flags.set("external-cloud-volume-plugin", &config.external_cloud_volume_plugin);
    flags.set("node-cidr-mask-size", &config.node_cidr_mask_size);
    flags.set("node-monitor-grace-period", &config.node_monitor_grace_period);
    flags.set("node-monitor-period", &config.node_monitor_period);
    flags.set("pod-eviction-timeout", &config.pod_eviction_timeout);
}

fn add_workload_flags(flags: &mut Flags, config: &KubeControllerManagerConfig) {
    add_autoscaler_flags(flags, config);
    flags.set("attach-detach-reconcile-sync-period", &config.attach_detach_reconcile_sync_period);
    flags.set("concurrent-deployment-syncs", &config.concurrent_deployment_syncs);
    flags.set("concurrent-endpoint-syncs", &config.concurrent_endpoint_syncs);
    flags.set(
        "concurrent-horizontal-pod-autoscaler-syncs",
        &config.concurrent_horizontal_pod_austoscaler_syncs,
    );
    flags.set("concurrent-job-syncs", &config.concurrent_job_syncs);
    flags.set("concurrent-namespace-syncs", &config.concurrent_namespace_syncs);
    flags.set("concurrent-rc-syncs", &config.concurrent_rc_syncs);
    flags.set("concurrent-replicaset-syncs", &config.concurrent_replicaset_syncs);
    flags.set("concurrent-resource-quota-syncs", &config.concurrent_resource_quota_syncs);
    flags.set("concurrent-service-syncs", &config.concurrent_service_syncs);
    flags.set("concurrent-serviceaccount-token-syncs", &config.concurrent_serviceaccount_token_syncs);
    flags.set("disable-attach-detach-reconcile-sync", &config.disable_attach_detach_reconcile_sync);
    flags.set("endpoint-updates-batch-period", &config.endpoint_updates_batch_period);
    flags.set("endpointslice-updates-batch-period", &config.endpoint_slice_updates_batch_period);
    flags.set("terminated-pod-gc-threshold", &config.terminated_pod_gc_threshold);
}

fn add_autoscaler_flags(flags: &mut Flags, config: &KubeControllerManagerConfig) {
    let mut set = |name: &str, value: &dyn FlagValue| {
        flags.set(&format!("horizontal-pod-autoscaler-{name}"), value);
    };
    set("cpu-initialization-period", &config.horizontal_pod_autoscaler_cpu_initialization_period);
    set("downscale-delay", &config.horizontal_pod_autoscaler_downscale_delay);
    set("downscale-stabilization", &config.horizontal_pod_autoscaler_downscale_stabilization);
    set("initial-readiness-delay", &config.horizontal_pod_autoscaler_initial_readiness_delay);
    set("sync-period", &config.horizontal_pod_autoscaler_sync_period);
    set("tolerance", &config.horizontal_pod_autoscaler_tolerance);
    set("upscale-delay", &config.horizontal_pod_autoscaler_upscale_delay);
    set("use-rest-clients", &config.horizontal_pod_autoscaler_use_rest_clients);
}

#[cfg(test)]
mod tests;
