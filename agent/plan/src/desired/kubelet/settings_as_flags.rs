//! kubelet's settings up to kOps 1.35. Nearly all are flags, and the configuration file has only settings without a flag.
//!
//! Source: the `flag` tags of `KubeletConfigSpec` in pkg/apis/kops/componentconfig.go, and nodeup/pkg/model/kubelet.go, at v1.35.2.

use serde::Serialize;
use serde_with::skip_serializing_none;

use crate::desired::paths;
use crate::resolve::NodeConfig;
use kops_agent_spec::{Duration, KubeletConfigSpec};

use super::configuration::{CrashLoopBackOff, Logging, MemorySwap, some_time};
use super::daemon_flags;

/// kubelet's flags up to kOps 1.35. If a flag repeats, kubelet uses its last value.
pub(super) fn flags(node: &NodeConfig) -> Vec<String> {
    let KubeletConfigSpec {
        anonymous_auth,
        authorization_mode,
        tls_cipher_suites,
        tls_min_version,
        log_format,
        pod_manifest_path,
        pod_infra_container_image,
        seccomp_default,
        enable_debugging_handlers,
        node_status_update_frequency,
        cluster_domain,
        cluster_dns,
        kubelet_cgroups,
        read_only_port,
        system_cgroups,
        cgroup_root,
        hairpin_mode,
        max_pods,
        pod_cidr,
        resolv_conf,
        serialize_image_pulls,
        image_gc_high_threshold_percent,
        image_gc_low_threshold_percent,
        eviction_hard,
        eviction_soft,
        eviction_soft_grace_period,
        eviction_pressure_transition_period,
        eviction_max_pod_grace_period,
        eviction_minimum_reclaim,
        volume_plugin_directory,
        taints,
        feature_gates,
        kernel_memcg_notification,
        kube_reserved,
        kube_reserved_cgroup,
        system_reserved,
        system_reserved_cgroup,
        enforce_node_allocatable,
        fail_swap_on,
        allowed_unsafe_sysctls,
        authentication_token_webhook,
        cpu_cfs_quota,
        cpu_cfs_quota_period,
        cpu_manager_policy,
        registry_pull_qps,
        topology_manager_policy,
        rotate_certificates,
        protect_kernel_defaults,
        cgroup_driver,
        event_qps,
        container_log_max_size,
        container_log_max_files,
        pod_pids_limit,
        // `daemon_flags` passes these settings.
        api_servers: _,
        bootstrap_kubeconfig: _,
        kubeconfig_path: _,
        require_kubeconfig: _,
        log_level: _,
        hostname_override: _,
        seccomp_profile_root: _,
        allow_privileged: _,
        register_node: _,
        network_plugin_name: _,
        cloud_provider: _,
        runtime_cgroups: _,
        configure_cbr0: _,
        babysit_daemons: _,
        nvidia_gpus: _,
        reconcile_cidr: _,
        register_schedulable: _,
        node_labels: _,
        non_masquerade_cidr: _,
        enable_custom_metrics: _,
        network_plugin_mtu: _,
        image_pull_progress_deadline: _,
        volume_stats_agg_period: _,
        experimental_allowed_unsafe_sysctls: _,
        streaming_connection_idle_timeout: _,
        root_dir: _,
        authentication_token_webhook_cache_ttl: _,
        registry_burst: _,
        housekeeping_interval: _,
        event_burst: _,
        enable_cadvisor_json_endpoints: _,
        experimental_allocatable_ignore_eviction: _,
        // These settings are in `configuration`.
        image_minimum_gc_age: _,
        image_maximum_gc_age: _,
        max_parallel_image_pulls: _,
        shutdown_grace_period: _,
        shutdown_grace_period_critical_pods: _,
        memory_swap_behavior: _,
        crash_loop_back_off_max_container_restart_period: _,
        // kubelet uses kOps' own files instead of the files in these settings.
        client_ca_file: _,
        tls_cert_file: _,
        tls_private_key_file: _,
        // The flag takes its value from the spec, because this field has kOps' default if the spec sets no value.
        runtime_request_timeout: _,
        // kOps has these fields since 1.36.
        kube_api_qps: _,
        event_record_qps: _,
        node_lease_duration_seconds: _,
    } = &node.kubelet.config;
    let mut flags = daemon_flags::of_every_release(node);

    flags.set("anonymous-auth", anonymous_auth);
    flags.set("authentication-token-webhook", authentication_token_webhook);
    flags.set("authorization-mode", authorization_mode);
    flags.set("client-ca-file", &paths::kubernetes_ca(node.distribution));
    flags.set("enable-debugging-handlers", enable_debugging_handlers);
    flags.set("read-only-port", read_only_port);
    flags.set("rotate-certificates", rotate_certificates);
    flags.set("tls-cert-file", &paths::kubelet_server_certificate(node.distribution));
    flags.set("tls-cipher-suites", tls_cipher_suites);
    flags.set("tls-min-version", tls_min_version);
    flags.set("tls-private-key-file", &paths::kubelet_server_key(node.distribution));

    flags.set("allowed-unsafe-sysctls", allowed_unsafe_sysctls);
    flags.set("cluster-dns", cluster_dns);
    flags.set("cluster-domain", cluster_domain);
    flags.set("container-log-max-files", container_log_max_files);
    flags.set("container-log-max-size", container_log_max_size);
    flags.set("hairpin-mode", hairpin_mode);
    flags.set("max-pods", max_pods);
    flags.set("pod-cidr", pod_cidr);
    if node.release().pause_image_is_kubelets() {
        flags.set("pod-infra-container-image", pod_infra_container_image);
    }
    flags.set("pod-manifest-path", pod_manifest_path);
    flags.set("pod-max-pids", pod_pids_limit);
    flags.set("registry-qps", registry_pull_qps);
    flags.set_even_if_empty("resolv-conf", resolv_conf.as_deref());
    flags.set("seccomp-default", seccomp_default);
    flags.set("serialize-image-pulls", serialize_image_pulls);

    flags.set("cpu-cfs-quota", cpu_cfs_quota);
    flags.set("cpu-cfs-quota-period", cpu_cfs_quota_period);
    flags.set("cpu-manager-policy", cpu_manager_policy);
    flags.set("enforce-node-allocatable", enforce_node_allocatable);
    flags.set("eviction-hard", eviction_hard);
    flags.set_unless("eviction-max-pod-grace-period", eviction_max_pod_grace_period, "0");
    flags.set("eviction-minimum-reclaim", eviction_minimum_reclaim);
    flags.set_unless("eviction-pressure-transition-period", eviction_pressure_transition_period, "0s");
    flags.set("eviction-soft", eviction_soft);
    flags.set("eviction-soft-grace-period", eviction_soft_grace_period);
    flags.set("fail-swap-on", fail_swap_on);
    flags.set("image-gc-high-threshold", image_gc_high_threshold_percent);
    flags.set("image-gc-low-threshold", image_gc_low_threshold_percent);
    flags.set("kernel-memcg-notification", kernel_memcg_notification);
    flags.set("kube-reserved", kube_reserved);
    flags.set("kube-reserved-cgroup", kube_reserved_cgroup);
    flags.set("system-reserved", system_reserved);
    flags.set("system-reserved-cgroup", system_reserved_cgroup);
    flags.set("topology-manager-policy", topology_manager_policy);

    flags.set("cgroup-driver", cgroup_driver);
    flags.set("cgroup-root", cgroup_root);
    flags.set_unless("event-qps", event_qps, "0");
    flags.set("feature-gates", feature_gates);
    flags.set("kubelet-cgroups", kubelet_cgroups);
    flags.set_unless("logging-format", log_format, "text");
    flags.set("node-status-update-frequency", node_status_update_frequency);
    flags.set("protect-kernel-defaults", protect_kernel_defaults);
    flags.set("register-with-taints", taints);
    flags.set("system-cgroups", system_cgroups);
    flags.set("volume-plugin-dir", volume_plugin_directory);
    if node.uses_in_tree_cloud_config() {
        flags.set("cloud-config", paths::IN_TREE_CLOUD_CONFIG);
    }
    let endpoint = format!("unix://{}", paths::containerd_socket(node.containerd()));
    flags.set("container-runtime-endpoint", &endpoint);
    flags.set("runtime-request-timeout", &node.config.kubelet_config.runtime_request_timeout);
    let mut flags = flags.into_sorted();
    // kOps' own value comes last, so it overrides the spec's value.
    flags.push("--runtime-request-timeout=15m".into());
    flags
}

/// The part of `KubeletConfiguration` for settings without a flag.
#[skip_serializing_none]
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Configuration {
    api_version: &'static str,
    kind: &'static str,
    crash_loop_back_off: Option<CrashLoopBackOff>,
    #[serde(rename = "imageMaximumGCAge")]
    image_maximum_gc_age: Option<Duration>,
    #[serde(rename = "imageMinimumGCAge")]
    image_minimum_gc_age: Option<Duration>,
    logging: Logging,
    max_parallel_image_pulls: Option<i32>,
    memory_swap: Option<MemorySwap>,
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    shutdown_grace_period: Option<Duration>,
    shutdown_grace_period_critical_pods: Option<Duration>,
}

pub(super) fn configuration(node: &NodeConfig) -> Configuration {
    let config = &node.kubelet.config;
    let restart_period = config.crash_loop_back_off_max_container_restart_period;
    let swap = Some(config.memory_swap_behavior.clone()).filter(|behavior| !behavior.is_empty());
    Configuration {
        api_version: "kubelet.config.k8s.io/v1beta1",
        kind: "KubeletConfiguration",
        crash_loop_back_off: restart_period
            .map(|period| CrashLoopBackOff { max_container_restart_period: Some(period) }),
        image_maximum_gc_age: some_time(config.image_maximum_gc_age),
        image_minimum_gc_age: some_time(config.image_minimum_gc_age),
        logging: Logging::default(),
        max_parallel_image_pulls: config.max_parallel_image_pulls,
        memory_swap: swap.map(|swap_behavior| MemorySwap { swap_behavior }),
        provider_id: Some(node.kubelet.provider_id.clone()).filter(|id| !id.is_empty()),
        shutdown_grace_period: some_time(config.shutdown_grace_period),
        shutdown_grace_period_critical_pods: some_time(config.shutdown_grace_period_critical_pods),
    }
}
