//! kubelet's configuration file: the part of `KubeletConfiguration` (kubelet.config.k8s.io/v1beta1) that
//! kOps sets. Unset fields are omitted, so kubelet uses its defaults. Only `logging` is always written:
//! the API has no "unset" for it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_with::{apply, skip_serializing_none};

use crate::desired::paths;
use crate::resolve::{NodeConfig, Taint};
use kops_agent_spec::go_yaml::is_zero;
use kops_agent_spec::{Duration, KubeletConfigSpec};

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KubeletConfiguration {
    #[serde_with(skip_apply)]
    api_version: &'static str,
    #[serde_with(skip_apply)]
    kind: &'static str,
    allowed_unsafe_sysctls: Vec<String>,
    #[serde_with(skip_apply)]
    authentication: Authentication,
    #[serde_with(skip_apply)]
    authorization: Authorization,
    cgroup_driver: String,
    cgroup_root: String,
    #[serde(rename = "clusterDNS")]
    cluster_dns: Vec<String>,
    cluster_domain: String,
    container_log_max_files: Option<i32>,
    container_log_max_size: String,
    #[serde_with(skip_apply)]
    container_runtime_endpoint: String,
    #[serde(rename = "cpuCFSQuota")]
    cpu_cfs_quota: Option<bool>,
    #[serde(rename = "cpuCFSQuotaPeriod")]
    cpu_cfs_quota_period: Option<Duration>,
    cpu_manager_policy: String,
    crash_loop_back_off: CrashLoopBackOff,
    enable_debugging_handlers: Option<bool>,
    enforce_node_allocatable: Vec<String>,
    #[serde(rename = "eventRecordQPS")]
    event_record_qps: Option<i32>,
    eviction_hard: BTreeMap<String, String>,
    eviction_max_pod_grace_period: i32,
    eviction_minimum_reclaim: BTreeMap<String, String>,
    eviction_pressure_transition_period: Option<Duration>,
    eviction_soft: BTreeMap<String, String>,
    eviction_soft_grace_period: BTreeMap<String, String>,
    fail_swap_on: Option<bool>,
    feature_gates: BTreeMap<String, bool>,
    hairpin_mode: String,
    #[serde(rename = "imageGCHighThresholdPercent")]
    image_gc_high_threshold_percent: Option<i32>,
    #[serde(rename = "imageGCLowThresholdPercent")]
    image_gc_low_threshold_percent: Option<i32>,
    #[serde(rename = "imageMaximumGCAge")]
    image_maximum_gc_age: Option<Duration>,
    kernel_memcg_notification: bool,
    kube_reserved: BTreeMap<String, String>,
    kube_reserved_cgroup: String,
    kubelet_cgroups: String,
    #[serde_with(skip_apply)]
    logging: Logging,
    max_parallel_image_pulls: Option<i32>,
    max_pods: i32,
    memory_swap: MemorySwap,
    node_lease_duration_seconds: i32,
    node_status_update_frequency: Option<Duration>,
    #[serde(rename = "podCIDR")]
    pod_cidr: String,
    pod_pids_limit: Option<i64>,
    protect_kernel_defaults: bool,
    #[serde(rename = "providerID")]
    provider_id: String,
    read_only_port: i32,
    register_with_taints: Vec<WrittenTaint>,
    #[serde(rename = "registryPullQPS")]
    registry_pull_qps: Option<i32>,
    resolv_conf: Option<String>,
    rotate_certificates: bool,
    seccomp_default: Option<bool>,
    serialize_image_pulls: Option<bool>,
    shutdown_grace_period: Option<Duration>,
    shutdown_grace_period_critical_pods: Option<Duration>,
    static_pod_path: String,
    system_cgroups: String,
    system_reserved: BTreeMap<String, String>,
    system_reserved_cgroup: String,
    #[serde_with(skip_apply)]
    tls_cert_file: String,
    tls_cipher_suites: Vec<String>,
    tls_min_version: String,
    #[serde_with(skip_apply)]
    tls_private_key_file: String,
    topology_manager_policy: String,
    volume_plugin_dir: String,
}

#[derive(Serialize)]
struct Authentication {
    anonymous: Enabled,
    webhook: Enabled,
    x509: X509,
}

#[skip_serializing_none]
#[derive(Serialize)]
struct Enabled {
    enabled: Option<bool>,
}

#[derive(Serialize)]
struct X509 {
    #[serde(rename = "clientCAFile")]
    client_ca_file: String,
}

#[derive(Serialize)]
struct Authorization {
    mode: String,
}

#[skip_serializing_none]
#[derive(Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CrashLoopBackOff {
    pub(super) max_container_restart_period: Option<Duration>,
}

#[derive(Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MemorySwap {
    pub(super) swap_behavior: String,
}

#[derive(PartialEq, Serialize)]
struct WrittenTaint {
    effect: String,
    key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    value: String,
}

impl From<&Taint> for WrittenTaint {
    fn from(taint: &Taint) -> WrittenTaint {
        let Taint { key, value, effect } = taint.clone();
        WrittenTaint { effect, key, value }
    }
}

/// The settings of kubelet's log. Every field except the format is always written. Zero means kubelet's
/// default.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Logging {
    flush_frequency: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    format: String,
    options: LoggingOptions,
    verbosity: i32,
}

#[derive(Default, Serialize)]
struct LoggingOptions {
    json: OutputOptions,
    text: OutputOptions,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OutputOptions {
    info_buffer_size: &'static str,
}

impl Default for OutputOptions {
    fn default() -> OutputOptions {
        OutputOptions { info_buffer_size: "0" }
    }
}

pub(super) fn configuration(node: &NodeConfig) -> KubeletConfiguration {
    let kubelet = &node.kubelet;
    let KubeletConfigSpec {
        anonymous_auth,
        authorization_mode,
        tls_cipher_suites,
        tls_min_version,
        log_format,
        pod_manifest_path,
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
        image_maximum_gc_age,
        max_parallel_image_pulls,
        image_gc_high_threshold_percent,
        image_gc_low_threshold_percent,
        eviction_pressure_transition_period,
        eviction_max_pod_grace_period,
        volume_plugin_directory,
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
        shutdown_grace_period,
        shutdown_grace_period_critical_pods,
        memory_swap_behavior,
        crash_loop_back_off_max_container_restart_period,
        event_record_qps,
        node_lease_duration_seconds,
        // `daemon_flags` passes these settings as flags.
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
        image_minimum_gc_age: _,
        image_pull_progress_deadline: _,
        runtime_request_timeout: _,
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
        kube_api_qps: _,
        // The parsed form of these settings is in `Kubelet`.
        eviction_hard: _,
        eviction_soft: _,
        eviction_soft_grace_period: _,
        eviction_minimum_reclaim: _,
        taints: _,
        feature_gates: _,
        // kOps' own files replace these files.
        client_ca_file: _,
        tls_cert_file: _,
        tls_private_key_file: _,
        // Since kOps 1.36, the pause image is a setting of containerd.
        pod_infra_container_image: _,
    } = kubelet.config.clone();
    let enforced = enforce_node_allocatable.split(',').map(str::to_owned);
    KubeletConfiguration {
        api_version: "kubelet.config.k8s.io/v1beta1",
        kind: "KubeletConfiguration",
        allowed_unsafe_sysctls,
        authentication: Authentication {
            anonymous: Enabled { enabled: anonymous_auth },
            webhook: Enabled { enabled: authentication_token_webhook },
            x509: X509 { client_ca_file: paths::kubernetes_ca(node.distribution) },
        },
        authorization: Authorization { mode: authorization_mode },
        cgroup_driver,
        cgroup_root,
        cluster_dns: Some(cluster_dns).filter(|address| !address.is_empty()).into_iter().collect(),
        cluster_domain,
        container_log_max_files,
        container_log_max_size,
        container_runtime_endpoint: format!("unix://{}", paths::containerd_socket(node.containerd())),
        cpu_cfs_quota,
        cpu_cfs_quota_period,
        cpu_manager_policy,
        crash_loop_back_off: CrashLoopBackOff {
            max_container_restart_period: crash_loop_back_off_max_container_restart_period,
        },
        enable_debugging_handlers,
        enforce_node_allocatable: enforced.filter(|what| !what.is_empty()).collect(),
        // The older field, `eventQPS`, overrides the newer field.
        event_record_qps: event_qps.or(event_record_qps),
        eviction_hard: kubelet.eviction_hard.clone(),
        eviction_max_pod_grace_period,
        eviction_minimum_reclaim: kubelet.eviction_minimum_reclaim.clone(),
        eviction_pressure_transition_period: some_time(eviction_pressure_transition_period),
        eviction_soft: kubelet.eviction_soft.clone(),
        eviction_soft_grace_period: kubelet.eviction_soft_grace_period.clone(),
        fail_swap_on,
        feature_gates: kubelet.feature_gates.clone(),
        hairpin_mode,
        image_gc_high_threshold_percent,
        image_gc_low_threshold_percent,
        image_maximum_gc_age: some_time(image_maximum_gc_age),
        kernel_memcg_notification: kernel_memcg_notification.unwrap_or_default(),
        kube_reserved,
        kube_reserved_cgroup,
        kubelet_cgroups,
        logging: Logging { format: log_format, ..Logging::default() },
        max_parallel_image_pulls,
        max_pods: max_pods.unwrap_or_default(),
        memory_swap: MemorySwap { swap_behavior: memory_swap_behavior },
        node_lease_duration_seconds: node_lease_duration_seconds.unwrap_or_default(),
        node_status_update_frequency: some_time(node_status_update_frequency),
        pod_cidr,
        pod_pids_limit,
        protect_kernel_defaults: protect_kernel_defaults.unwrap_or_default(),
        provider_id: kubelet.provider_id.clone(),
        read_only_port: read_only_port.unwrap_or_default(),
        register_with_taints: kubelet.taints.iter().map(WrittenTaint::from).collect(),
        registry_pull_qps,
        resolv_conf,
        rotate_certificates: rotate_certificates.unwrap_or_default(),
        seccomp_default,
        serialize_image_pulls,
        shutdown_grace_period: some_time(shutdown_grace_period),
        shutdown_grace_period_critical_pods: some_time(shutdown_grace_period_critical_pods),
        static_pod_path: pod_manifest_path,
        system_cgroups,
        system_reserved,
        system_reserved_cgroup,
        tls_cert_file: paths::kubelet_server_certificate(node.distribution),
        tls_cipher_suites,
        tls_min_version,
        tls_private_key_file: paths::kubelet_server_key(node.distribution),
        topology_manager_policy,
        volume_plugin_dir: volume_plugin_directory,
    }
}

/// Drops a zero duration, because the API treats zero as unset.
pub(super) fn some_time(duration: Option<Duration>) -> Option<Duration> {
    duration.filter(|duration| !duration.is_zero())
}
