//! What kOps wants of the kubelet.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::duration::Duration;
use super::omit::is_zero;

/// `KubeletConfigSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletConfigSpec {
    /// `--api-servers`: Api servers.
    #[serde(skip_serializing_if = "is_zero")]
    pub api_servers: String,
    /// Anonymous auth.
    #[serde(skip_serializing_if = "is_zero")]
    pub anonymous_auth: Option<bool>,
    /// Authorization mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub authorization_mode: String,
    /// `--bootstrap-kubeconfig`: Bootstrap kubeconfig.
    #[serde(skip_serializing_if = "is_zero")]
    pub bootstrap_kubeconfig: String,
    /// Client CA file.
    #[serde(rename = "clientCAFile", skip_serializing_if = "is_zero")]
    pub client_ca_file: String,
    /// Tls cert file.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_cert_file: String,
    /// Tls private key file.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_private_key_file: String,
    /// Tls cipher suites.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_cipher_suites: Vec<String>,
    /// Tls min version.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_min_version: String,
    /// `--kubeconfig`: Kubeconfig path.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubeconfig_path: String,
    /// `--require-kubeconfig`: Require kubeconfig.
    #[serde(skip_serializing_if = "is_zero")]
    pub require_kubeconfig: Option<bool>,
    /// Log format.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_format: String,
    /// `--v`: Log level.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: Option<i32>,
    /// Pod manifest path.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_manifest_path: String,
    /// `--hostname-override`: Hostname override.
    #[serde(skip_serializing_if = "is_zero")]
    pub hostname_override: String,
    /// Pod infra container image.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_infra_container_image: String,
    /// Seccomp default.
    #[serde(skip_serializing_if = "is_zero")]
    pub seccomp_default: Option<bool>,
    /// `--seccomp-profile-root`: Seccomp profile root.
    #[serde(skip_serializing_if = "is_zero")]
    pub seccomp_profile_root: Option<String>,
    /// `--allow-privileged`: Allow privileged.
    #[serde(skip_serializing_if = "is_zero")]
    pub allow_privileged: Option<bool>,
    /// Enable debugging handlers.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_debugging_handlers: Option<bool>,
    /// `--register-node`: Register node.
    #[serde(skip_serializing_if = "is_zero")]
    pub register_node: Option<bool>,
    /// Node status update frequency.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_status_update_frequency: Option<Duration>,
    /// Cluster domain.
    #[serde(skip_serializing_if = "is_zero")]
    pub cluster_domain: String,
    /// Cluster DNS.
    #[serde(rename = "clusterDNS", skip_serializing_if = "is_zero")]
    pub cluster_dns: String,
    /// `--network-plugin`: Network plugin name.
    #[serde(skip_serializing_if = "is_zero")]
    pub network_plugin_name: Option<String>,
    /// `--cloud-provider`: Cloud provider.
    #[serde(skip_serializing_if = "is_zero")]
    pub cloud_provider: String,
    /// Kubelet cgroups.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubelet_cgroups: String,
    /// `--runtime-cgroups`: Runtime cgroups.
    #[serde(skip_serializing_if = "is_zero")]
    pub runtime_cgroups: String,
    /// Read only port.
    #[serde(skip_serializing_if = "is_zero")]
    pub read_only_port: Option<i32>,
    /// System cgroups.
    #[serde(skip_serializing_if = "is_zero")]
    pub system_cgroups: String,
    /// Cgroup root.
    #[serde(skip_serializing_if = "is_zero")]
    pub cgroup_root: String,
    /// `--configure-cbr0`: Configure cbr0.
    #[serde(skip_serializing_if = "is_zero")]
    pub configure_cbr0: Option<bool>,
    /// Hairpin mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub hairpin_mode: String,
    /// `--babysit-daemons`: Babysit daemons.
    #[serde(skip_serializing_if = "is_zero")]
    pub babysit_daemons: Option<bool>,
    /// Max pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_pods: Option<i32>,
    /// `--experimental-nvidia-gpus`: Nvidia gpus.
    #[serde(rename = "nvidiaGPUs", skip_serializing_if = "is_zero")]
    pub nvidia_gpus: i32,
    /// Pod CIDR.
    #[serde(rename = "podCIDR", skip_serializing_if = "is_zero")]
    pub pod_cidr: String,
    /// Resolv conf.
    #[serde(skip_serializing_if = "is_zero")]
    pub resolv_conf: Option<String>,
    /// `--reconcile-cidr`: Reconcile CIDR.
    #[serde(rename = "reconcileCIDR", skip_serializing_if = "is_zero")]
    pub reconcile_cidr: Option<bool>,
    /// `--register-schedulable`: Register schedulable.
    #[serde(skip_serializing_if = "is_zero")]
    pub register_schedulable: Option<bool>,
    /// Serialize image pulls.
    #[serde(skip_serializing_if = "is_zero")]
    pub serialize_image_pulls: Option<bool>,
    /// `--node-labels`: Node labels.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_labels: BTreeMap<String, String>,
    /// `--non-masquerade-cidr`: Non masquerade CIDR.
    #[serde(rename = "nonMasqueradeCIDR", skip_serializing_if = "is_zero")]
    pub non_masquerade_cidr: Option<String>,
    /// `--enable-custom-metrics`: Enable custom metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_custom_metrics: Option<bool>,
    /// `--network-plugin-mtu`: Network plugin MTU.
    #[serde(rename = "networkPluginMTU", skip_serializing_if = "is_zero")]
    pub network_plugin_mtu: Option<i32>,
    /// `--image-minimum-gc-age`: Image minimum GC age.
    #[serde(rename = "imageMinimumGCAge", skip_serializing_if = "is_zero")]
    pub image_minimum_gc_age: Option<Duration>,
    /// Image maximum GC age.
    #[serde(rename = "imageMaximumGCAge", skip_serializing_if = "is_zero")]
    pub image_maximum_gc_age: Option<Duration>,
    /// Max parallel image pulls.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_parallel_image_pulls: Option<i32>,
    /// Image GC high threshold percent.
    #[serde(rename = "imageGCHighThresholdPercent", skip_serializing_if = "is_zero")]
    pub image_gc_high_threshold_percent: Option<i32>,
    /// Image GC low threshold percent.
    #[serde(rename = "imageGCLowThresholdPercent", skip_serializing_if = "is_zero")]
    pub image_gc_low_threshold_percent: Option<i32>,
    /// `--image-pull-progress-deadline`: Image pull progress deadline.
    #[serde(skip_serializing_if = "is_zero")]
    pub image_pull_progress_deadline: Option<Duration>,
    /// Eviction hard.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_hard: Option<String>,
    /// Eviction soft.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_soft: String,
    /// Eviction soft grace period.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_soft_grace_period: String,
    /// Eviction pressure transition period.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_pressure_transition_period: Option<Duration>,
    /// Eviction max pod grace period.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_max_pod_grace_period: i32,
    /// Eviction minimum reclaim.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_minimum_reclaim: String,
    /// Volume plugin directory.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_plugin_directory: String,
    /// Taints.
    #[serde(skip_serializing_if = "is_zero")]
    pub taints: Vec<String>,
    /// Feature gates.
    #[serde(skip_serializing_if = "is_zero")]
    pub feature_gates: BTreeMap<String, String>,
    /// Kernel memcg notification.
    #[serde(skip_serializing_if = "is_zero")]
    pub kernel_memcg_notification: Option<bool>,
    /// Kube reserved.
    #[serde(skip_serializing_if = "is_zero")]
    pub kube_reserved: BTreeMap<String, String>,
    /// Kube reserved cgroup.
    #[serde(skip_serializing_if = "is_zero")]
    pub kube_reserved_cgroup: String,
    /// System reserved.
    #[serde(skip_serializing_if = "is_zero")]
    pub system_reserved: BTreeMap<String, String>,
    /// System reserved cgroup.
    #[serde(skip_serializing_if = "is_zero")]
    pub system_reserved_cgroup: String,
    /// Enforce node allocatable.
    #[serde(skip_serializing_if = "is_zero")]
    pub enforce_node_allocatable: String,
    /// `--runtime-request-timeout`: Runtime request timeout.
    #[serde(skip_serializing_if = "is_zero")]
    pub runtime_request_timeout: Option<Duration>,
    /// `--volume-stats-agg-period`: Volume stats agg period.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_stats_agg_period: Option<Duration>,
    /// Fail swap on.
    #[serde(skip_serializing_if = "is_zero")]
    pub fail_swap_on: Option<bool>,
    /// `--experimental-allowed-unsafe-sysctls`: Experimental allowed unsafe sysctls.
    #[serde(skip_serializing_if = "is_zero")]
    pub experimental_allowed_unsafe_sysctls: Vec<String>,
    /// Allowed unsafe sysctls.
    #[serde(skip_serializing_if = "is_zero")]
    pub allowed_unsafe_sysctls: Vec<String>,
    /// `--streaming-connection-idle-timeout`: Streaming connection idle timeout.
    #[serde(skip_serializing_if = "is_zero")]
    pub streaming_connection_idle_timeout: Option<Duration>,
    /// `--root-dir`: Root dir.
    #[serde(skip_serializing_if = "is_zero")]
    pub root_dir: String,
    /// Authentication token webhook.
    #[serde(skip_serializing_if = "is_zero")]
    pub authentication_token_webhook: Option<bool>,
    /// `--authentication-token-webhook-cache-ttl`: Authentication token webhook cache TTL.
    #[serde(rename = "authenticationTokenWebhookCacheTTL", skip_serializing_if = "is_zero")]
    pub authentication_token_webhook_cache_ttl: Option<Duration>,
    /// Cpu CFS quota.
    #[serde(rename = "cpuCFSQuota", skip_serializing_if = "is_zero")]
    pub cpu_cfs_quota: Option<bool>,
    /// Cpu CFS quota period.
    #[serde(rename = "cpuCFSQuotaPeriod", skip_serializing_if = "is_zero")]
    pub cpu_cfs_quota_period: Option<Duration>,
    /// Cpu manager policy.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_manager_policy: String,
    /// Registry pull QPS.
    #[serde(rename = "registryPullQPS", skip_serializing_if = "is_zero")]
    pub registry_pull_qps: Option<i32>,
    /// `--registry-burst`: Registry burst.
    #[serde(skip_serializing_if = "is_zero")]
    pub registry_burst: Option<i32>,
    /// Topology manager policy.
    #[serde(skip_serializing_if = "is_zero")]
    pub topology_manager_policy: String,
    /// Rotate certificates.
    #[serde(skip_serializing_if = "is_zero")]
    pub rotate_certificates: Option<bool>,
    /// Protect kernel defaults.
    #[serde(skip_serializing_if = "is_zero")]
    pub protect_kernel_defaults: Option<bool>,
    /// Cgroup driver.
    #[serde(skip_serializing_if = "is_zero")]
    pub cgroup_driver: String,
    /// `--housekeeping-interval`: Housekeeping interval.
    #[serde(skip_serializing_if = "is_zero")]
    pub housekeeping_interval: Option<Duration>,
    /// Event QPS.
    #[serde(rename = "eventQPS", skip_serializing_if = "is_zero")]
    pub event_qps: Option<i32>,
    /// `--event-burst`: Event burst.
    #[serde(skip_serializing_if = "is_zero")]
    pub event_burst: Option<i32>,
    /// Container log max size.
    #[serde(skip_serializing_if = "is_zero")]
    pub container_log_max_size: String,
    /// Container log max files.
    #[serde(skip_serializing_if = "is_zero")]
    pub container_log_max_files: Option<i32>,
    /// `--enable-cadvisor-json-endpoints`: Enable cadvisor json endpoints.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_cadvisor_json_endpoints: Option<bool>,
    /// Pod pids limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_pids_limit: Option<i64>,
    /// `--experimental-allocatable-ignore-eviction`: Experimental allocatable ignore eviction.
    #[serde(skip_serializing_if = "is_zero")]
    pub experimental_allocatable_ignore_eviction: Option<bool>,
    /// Shutdown grace period.
    #[serde(skip_serializing_if = "is_zero")]
    pub shutdown_grace_period: Option<Duration>,
    /// Shutdown grace period critical pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub shutdown_grace_period_critical_pods: Option<Duration>,
    /// Memory swap behavior.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_swap_behavior: String,
    /// Crash loop back off max container restart period.
    #[serde(skip_serializing_if = "is_zero")]
    pub crash_loop_back_off_max_container_restart_period: Option<Duration>,
    /// `--kube-api-qps`: Kube API QPS.
    #[serde(rename = "kubeAPIQPS", skip_serializing_if = "is_zero")]
    pub kube_api_qps: Option<i32>,
    /// Event record QPS.
    #[serde(rename = "eventRecordQPS", skip_serializing_if = "is_zero")]
    pub event_record_qps: Option<i32>,
    /// Node lease duration seconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_lease_duration_seconds: Option<i32>,
}
