//! kube-controller-manager: a static pod on every control-plane machine. It signs certificates and tokens for
//! the cluster, so it gets the keypairs for both.
//!
//! Source: nodeup/pkg/model/kube_controller_manager.go.

use crate::resolve::{KUBERNETES_CA, NodeConfig};
use crate::resource::{DesiredState, File, Mode};
use kops_agent_spec::KubeControllerManagerConfig;

use super::flags::Flags;
use super::pod::{Access, Container, Critical, Pod, Resources, logged_command, proxy_env};
use super::{certificates, paths, serving};

const NAME: &str = "kube-controller-manager";
const HOME: &str = "/var/lib/kube-controller-manager";
const KUBECONFIG: &str = "/var/lib/kube-controller-manager/kubeconfig";

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
    // A DaemonSet installs volume plugins in this directory, for this pod and for kubelet.
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
    let KubeControllerManagerConfig {
        master,
        log_format,
        log_level,
        cloud_provider,
        cluster_name,
        cluster_cidr,
        allocate_node_cidrs,
        node_cidr_mask_size,
        configure_cloud_routes,
        controllers,
        cidr_allocator_type,
        leader_election,
        attach_detach_reconcile_sync_period,
        disable_attach_detach_reconcile_sync,
        terminated_pod_gc_threshold,
        node_monitor_period,
        node_monitor_grace_period,
        pod_eviction_timeout,
        use_service_account_credentials,
        horizontal_pod_autoscaler_sync_period,
        horizontal_pod_autoscaler_downscale_delay,
        horizontal_pod_autoscaler_downscale_stabilization,
        horizontal_pod_autoscaler_upscale_delay,
        horizontal_pod_autoscaler_initial_readiness_delay,
        horizontal_pod_autoscaler_cpu_initialization_period,
        horizontal_pod_autoscaler_tolerance,
        horizontal_pod_autoscaler_use_rest_clients,
        experimental_cluster_signing_duration,
        cluster_signing_duration,
        feature_gates,
        tls_cert_file,
        tls_cipher_suites,
        tls_min_version,
        tls_private_key_file,
        min_resync_period,
        kube_api_qps,
        kube_api_burst,
        concurrent_deployment_syncs,
        concurrent_endpoint_syncs,
        concurrent_namespace_syncs,
        concurrent_replicaset_syncs,
        concurrent_service_syncs,
        concurrent_resource_quota_syncs,
        concurrent_serviceaccount_token_syncs,
        concurrent_rc_syncs,
        concurrent_horizontal_pod_austoscaler_syncs,
        concurrent_job_syncs,
        authorization_always_allow_paths,
        external_cloud_volume_plugin,
        endpoint_updates_batch_period,
        endpoint_slice_updates_batch_period,
        enable_profiling,
        enable_contention_profiling,
        enable_leader_migration,
        // These settings are fields of the pod's container, not flags.
        image: _,
        cpu_request: _,
        cpu_limit: _,
        memory_request: _,
        memory_limit: _,
        // kOps' own files replace these files.
        service_account_private_key_file: _,
        root_ca_file: _,
        authentication_kubeconfig: _,
        authorization_kubeconfig: _,
    } = config;
    let mut flags = Flags::default();

    flags.set("authentication-kubeconfig", KUBECONFIG);
    flags.set("authorization-always-allow-paths", authorization_always_allow_paths);
    flags.set("authorization-kubeconfig", KUBECONFIG);
    flags.set("kube-api-burst", kube_api_burst);
    flags.set("kube-api-qps", kube_api_qps);
    flags.set("kubeconfig", KUBECONFIG);
    flags.set("master", master);

    flags.set("cluster-signing-cert-file", &file(node, "ca.crt"));
    flags.set("cluster-signing-duration", cluster_signing_duration);
    flags.set("cluster-signing-key-file", &file(node, "ca.key"));
    flags.set("experimental-cluster-signing-duration", experimental_cluster_signing_duration);
    flags.set("root-ca-file", &paths::kubernetes_ca(node.distribution));
    flags.set("service-account-private-key-file", &file(node, "service-account.key"));

    flags.set("contention-profiling", enable_contention_profiling);
    flags.set("profiling", enable_profiling);
    match tls_cert_file {
        Some(certificate_file) => {
            flags.set("tls-cert-file", certificate_file);
            flags.set("tls-private-key-file", tls_private_key_file);
        }
        None => {
            flags.set("tls-cert-file", &file(node, "server.crt"));
            flags.set("tls-private-key-file", &file(node, "server.key"));
        }
    }
    flags.set("tls-cipher-suites", tls_cipher_suites);
    flags.set("tls-min-version", tls_min_version);

    flags.set("allocate-node-cidrs", allocate_node_cidrs);
    flags.set("cidr-allocator-type", cidr_allocator_type);
    flags.set("cloud-provider", cloud_provider);
    flags.set("cluster-cidr", cluster_cidr);
    flags.set("cluster-name", cluster_name);
    flags.set("configure-cloud-routes", configure_cloud_routes);
    flags.set("external-cloud-volume-plugin", external_cloud_volume_plugin);
    flags.set("node-cidr-mask-size", node_cidr_mask_size);
    flags.set("node-monitor-grace-period", node_monitor_grace_period);
    flags.set("node-monitor-period", node_monitor_period);
    flags.set("pod-eviction-timeout", pod_eviction_timeout);

    flags.set("attach-detach-reconcile-sync-period", attach_detach_reconcile_sync_period);
    flags.set("concurrent-deployment-syncs", concurrent_deployment_syncs);
    flags.set("concurrent-endpoint-syncs", concurrent_endpoint_syncs);
    flags.set("concurrent-horizontal-pod-autoscaler-syncs", concurrent_horizontal_pod_austoscaler_syncs);
    flags.set("concurrent-job-syncs", concurrent_job_syncs);
    flags.set("concurrent-namespace-syncs", concurrent_namespace_syncs);
    flags.set("concurrent-rc-syncs", concurrent_rc_syncs);
    flags.set("concurrent-replicaset-syncs", concurrent_replicaset_syncs);
    flags.set("concurrent-resource-quota-syncs", concurrent_resource_quota_syncs);
    flags.set("concurrent-service-syncs", concurrent_service_syncs);
    flags.set("concurrent-serviceaccount-token-syncs", concurrent_serviceaccount_token_syncs);
    flags.set("disable-attach-detach-reconcile-sync", disable_attach_detach_reconcile_sync);
    flags.set("endpoint-updates-batch-period", endpoint_updates_batch_period);
    flags.set("endpointslice-updates-batch-period", endpoint_slice_updates_batch_period);
    flags.set("terminated-pod-gc-threshold", terminated_pod_gc_threshold);

    flags.set(
        "horizontal-pod-autoscaler-cpu-initialization-period",
        horizontal_pod_autoscaler_cpu_initialization_period,
    );
    flags.set("horizontal-pod-autoscaler-downscale-delay", horizontal_pod_autoscaler_downscale_delay);
    flags.set(
        "horizontal-pod-autoscaler-downscale-stabilization",
        horizontal_pod_autoscaler_downscale_stabilization,
    );
    flags.set(
        "horizontal-pod-autoscaler-initial-readiness-delay",
        horizontal_pod_autoscaler_initial_readiness_delay,
    );
    flags.set("horizontal-pod-autoscaler-sync-period", horizontal_pod_autoscaler_sync_period);
    flags.set("horizontal-pod-autoscaler-tolerance", horizontal_pod_autoscaler_tolerance);
    flags.set("horizontal-pod-autoscaler-upscale-delay", horizontal_pod_autoscaler_upscale_delay);
    flags.set("horizontal-pod-autoscaler-use-rest-clients", horizontal_pod_autoscaler_use_rest_clients);

    flags.set("flex-volume-plugin-dir", volume_plugin_directory(node));
    flags.set_leader_election(leader_election.as_ref());
    flags.set("controllers", controllers);
    flags.set("enable-leader-migration", enable_leader_migration);
    flags.set("feature-gates", feature_gates);
    flags.set_unless("logging-format", log_format, "text");
    if node.release().has_in_tree_cloud_config() {
        flags.set("cloud-config", paths::IN_TREE_CLOUD_CONFIG);
    }
    flags.set("min-resync-period", min_resync_period);
    flags.set("use-service-account-credentials", use_service_account_credentials);
    flags.set_unless("v", log_level, "0");
    flags.into_sorted()
}

#[cfg(test)]
mod tests;
