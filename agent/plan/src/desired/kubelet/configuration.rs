//! kubelet's configuration file: the part of `KubeletConfiguration` (kubelet.config.k8s.io/v1beta1) that
//! kOps sets. Unset fields are omitted, so kubelet uses its defaults. Only `logging` is always written:
//! the API has no "unset" for it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_with::{apply, skip_serializing_none};

use crate::desired::paths;
use crate::resolve::{NodeConfig, Taint};
use kops_agent_spec::Duration;
use kops_agent_spec::omit::is_zero;

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
    let config = kubelet.config.clone();
    let enforced = config.enforce_node_allocatable.split(',').map(str::to_owned);
    KubeletConfiguration {
        api_version: "kubelet.config.k8s.io/v1beta1",
        kind: "KubeletConfiguration",
        allowed_unsafe_sysctls: config.allowed_unsafe_sysctls,
        authentication: Authentication {
            anonymous: Enabled { enabled: config.anonymous_auth },
            webhook: Enabled { enabled: config.authentication_token_webhook },
            x509: X509 { client_ca_file: paths::kubernetes_ca(node.distribution) },
        },
        authorization: Authorization { mode: config.authorization_mode },
        cgroup_driver: config.cgroup_driver,
        cgroup_root: config.cgroup_root,
        cluster_dns: Some(config.cluster_dns).filter(|address| !address.is_empty()).into_iter().collect(),
        cluster_domain: config.cluster_domain,
        container_log_max_files: config.container_log_max_files,
        container_log_max_size: config.container_log_max_size,
        container_runtime_endpoint: format!("unix://{}", paths::containerd_socket(node.containerd())),
        cpu_cfs_quota: config.cpu_cfs_quota,
        cpu_cfs_quota_period: config.cpu_cfs_quota_period,
        cpu_manager_policy: config.cpu_manager_policy,
        crash_loop_back_off: CrashLoopBackOff {
            max_container_restart_period: config.crash_loop_back_off_max_container_restart_period,
        },
        enable_debugging_handlers: config.enable_debugging_handlers,
        enforce_node_allocatable: enforced.filter(|what| !what.is_empty()).collect(),
        // The older field, `eventQPS`, overrides the newer field.
        event_record_qps: config.event_qps.or(config.event_record_qps),
        eviction_hard: kubelet.eviction_hard.clone(),
        eviction_max_pod_grace_period: config.eviction_max_pod_grace_period,
        eviction_minimum_reclaim: kubelet.eviction_minimum_reclaim.clone(),
        eviction_pressure_transition_period: some_time(config.eviction_pressure_transition_period),
        eviction_soft: kubelet.eviction_soft.clone(),
        eviction_soft_grace_period: kubelet.eviction_soft_grace_period.clone(),
        fail_swap_on: config.fail_swap_on,
        feature_gates: kubelet.feature_gates.clone(),
        hairpin_mode: config.hairpin_mode,
        image_gc_high_threshold_percent: config.image_gc_high_threshold_percent,
        image_gc_low_threshold_percent: config.image_gc_low_threshold_percent,
        image_maximum_gc_age: some_time(config.image_maximum_gc_age),
        kernel_memcg_notification: config.kernel_memcg_notification.unwrap_or_default(),
        kube_reserved: config.kube_reserved,
        kube_reserved_cgroup: config.kube_reserved_cgroup,
        kubelet_cgroups: config.kubelet_cgroups,
        logging: Logging { format: config.log_format, ..Logging::default() },
        max_parallel_image_pulls: config.max_parallel_image_pulls,
        max_pods: config.max_pods.unwrap_or_default(),
        memory_swap: MemorySwap { swap_behavior: config.memory_swap_behavior },
        node_lease_duration_seconds: config.node_lease_duration_seconds.unwrap_or_default(),
        node_status_update_frequency: some_time(config.node_status_update_frequency),
        pod_cidr: config.pod_cidr,
        pod_pids_limit: config.pod_pids_limit,
        protect_kernel_defaults: config.protect_kernel_defaults.unwrap_or_default(),
        provider_id: kubelet.provider_id.clone(),
        read_only_port: config.read_only_port.unwrap_or_default(),
        register_with_taints: kubelet.taints.iter().map(WrittenTaint::from).collect(),
        registry_pull_qps: config.registry_pull_qps,
        resolv_conf: config.resolv_conf,
        rotate_certificates: config.rotate_certificates.unwrap_or_default(),
        seccomp_default: config.seccomp_default,
        serialize_image_pulls: config.serialize_image_pulls,
        shutdown_grace_period: some_time(config.shutdown_grace_period),
        shutdown_grace_period_critical_pods: some_time(config.shutdown_grace_period_critical_pods),
        static_pod_path: config.pod_manifest_path,
        system_cgroups: config.system_cgroups,
        system_reserved: config.system_reserved,
        system_reserved_cgroup: config.system_reserved_cgroup,
        tls_cert_file: paths::kubelet_server_certificate(node.distribution),
        tls_cipher_suites: config.tls_cipher_suites,
        tls_min_version: config.tls_min_version,
        tls_private_key_file: paths::kubelet_server_key(node.distribution),
        topology_manager_policy: config.topology_manager_policy,
        volume_plugin_dir: config.volume_plugin_directory,
    }
}

/// Drops a zero duration, because the API treats zero as unset.
pub(super) fn some_time(duration: Option<Duration>) -> Option<Duration> {
    duration.filter(|duration| !duration.is_zero())
}
