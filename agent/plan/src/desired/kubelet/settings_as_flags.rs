//! kubelet's settings up to kOps 1.35. Nearly all are flags, and the configuration file has only settings without a flag.
//!
//! Source: the `flag` tags of `KubeletConfigSpec` in pkg/apis/kops/componentconfig.go, and nodeup/pkg/model/kubelet.go, at v1.35.2.

use serde::Serialize;
use serde_with::skip_serializing_none;

use crate::desired::flags::Flags;
use crate::desired::paths;
use crate::resolve::NodeConfig;
use kops_agent_spec::Duration;

use super::configuration::{CrashLoopBackOff, Logging, MemorySwap, some_time};
use super::daemon_flags;

/// kubelet's flags up to kOps 1.35. If a flag repeats, kubelet uses its last value.
pub(super) fn flags(node: &NodeConfig) -> Vec<String> {
    let config = &node.kubelet.config;
    let mut flags = daemon_flags::of_every_release(node);
    add_access_flags(&mut flags, node);
    add_pod_flags(&mut flags, node);
    add_resource_flags(&mut flags, node);
    flags.set("cgroup-driver", &config.cgroup_driver);
    flags.set("cgroup-root", &config.cgroup_root);
    flags.set_unless("event-qps", &config.event_qps, "0");
    flags.set("feature-gates", &config.feature_gates);
    flags.set("kubelet-cgroups", &config.kubelet_cgroups);
    flags.set_unless("logging-format", &config.log_format, "text");
    flags.set("node-status-update-frequency", &config.node_status_update_frequency);
    flags.set("protect-kernel-defaults", &config.protect_kernel_defaults);
    flags.set("register-with-taints", &config.taints);
    flags.set("system-cgroups", &config.system_cgroups);
    flags.set("volume-plugin-dir", &config.volume_plugin_directory);
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

fn add_access_flags(flags: &mut Flags, node: &NodeConfig) {
    let config = &node.kubelet.config;
    flags.set("anonymous-auth", &config.anonymous_auth);
    flags.set("authentication-token-webhook", &config.authentication_token_webhook);
    flags.set("authorization-mode", &config.authorization_mode);
    flags.set("client-ca-file", &paths::kubernetes_ca(node.distribution));
    flags.set("enable-debugging-handlers", &config.enable_debugging_handlers);
    flags.set("read-only-port", &config.read_only_port);
    flags.set("rotate-certificates", &config.rotate_certificates);
    flags.set("tls-cert-file", &paths::kubelet_server_certificate(node.distribution));
    flags.set("tls-cipher-suites", &config.tls_cipher_suites);
    flags.set("tls-min-version", &config.tls_min_version);
    flags.set("tls-private-key-file", &paths::kubelet_server_key(node.distribution));
}

fn add_pod_flags(flags: &mut Flags, node: &NodeConfig) {
    let config = &node.kubelet.config;
    flags.set("allowed-unsafe-sysctls", &config.allowed_unsafe_sysctls);
    flags.set("cluster-dns", &config.cluster_dns);
    flags.set("cluster-domain", &config.cluster_domain);
    flags.set("container-log-max-files", &config.container_log_max_files);
    flags.set("container-log-max-size", &config.container_log_max_size);
    flags.set("hairpin-mode", &config.hairpin_mode);
    flags.set("max-pods", &config.max_pods);
    flags.set("pod-cidr", &config.pod_cidr);
    if node.release().pause_image_is_kubelets() {
        flags.set("pod-infra-container-image", &config.pod_infra_container_image);
    }
    flags.set("pod-manifest-path", &config.pod_manifest_path);
    flags.set("pod-max-pids", &config.pod_pids_limit);
    flags.set("registry-qps", &config.registry_pull_qps);
    flags.set_even_if_empty("resolv-conf", config.resolv_conf.as_deref());
    flags.set("seccomp-default", &config.seccomp_default);
    flags.set("serialize-image-pulls", &config.serialize_image_pulls);
}

fn add_resource_flags(flags: &mut Flags, node: &NodeConfig) {
    let config = &node.kubelet.config;
    flags.set("cpu-cfs-quota", &config.cpu_cfs_quota);
    flags.set("cpu-cfs-quota-period", &config.cpu_cfs_quota_period);
    flags.set("cpu-manager-policy", &config.cpu_manager_policy);
    flags.set("enforce-node-allocatable", &config.enforce_node_allocatable);
    flags.set("eviction-hard", &config.eviction_hard);
    flags.set_unless("eviction-max-pod-grace-period", &config.eviction_max_pod_grace_period, "0");
    flags.set("eviction-minimum-reclaim", &config.eviction_minimum_reclaim);
    let transition = &config.eviction_pressure_transition_period;
    flags.set_unless("eviction-pressure-transition-period", transition, "0s");
    flags.set("eviction-soft", &config.eviction_soft);
    flags.set("eviction-soft-grace-period", &config.eviction_soft_grace_period);
    flags.set("fail-swap-on", &config.fail_swap_on);
    flags.set("image-gc-high-threshold", &config.image_gc_high_threshold_percent);
    flags.set("image-gc-low-threshold", &config.image_gc_low_threshold_percent);
    flags.set("kernel-memcg-notification", &config.kernel_memcg_notification);
    flags.set("kube-reserved", &config.kube_reserved);
    flags.set("kube-reserved-cgroup", &config.kube_reserved_cgroup);
    flags.set("system-reserved", &config.system_reserved);
    flags.set("system-reserved-cgroup", &config.system_reserved_cgroup);
    flags.set("topology-manager-policy", &config.topology_manager_policy);
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
