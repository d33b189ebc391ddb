//! What kOps wants of the kubelet.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::duration::Duration;
use super::omit::is_zero;

/// What kOps wants of the kubelet. Fields without a flag go into its configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletConfigSpec {
    /// `--api-servers`: addresses of API servers; Kubernetes before 1.6 only.
    #[serde(skip_serializing_if = "is_zero")]
    pub api_servers: String,
    /// Whether requests without credentials are let in.
    #[serde(skip_serializing_if = "is_zero")]
    pub anonymous_auth: Option<bool>,
    /// How requests to the kubelet are authorized: `Webhook` or `AlwaysAllow`.
    #[serde(skip_serializing_if = "is_zero")]
    pub authorization_mode: String,
    /// `--bootstrap-kubeconfig`: kubeconfig that asks for the first client certificate.
    #[serde(skip_serializing_if = "is_zero")]
    pub bootstrap_kubeconfig: String,
    /// File of certificates that sign those of the kubelet's clients.
    #[serde(rename = "clientCAFile", skip_serializing_if = "is_zero")]
    pub client_ca_file: String,
    /// File of the serving certificate; nodeup sets it.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_cert_file: String,
    /// File of the serving key; nodeup sets it.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_private_key_file: String,
    /// Cipher suites that the server offers.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_cipher_suites: Vec<String>,
    /// Oldest TLS version that the server accepts.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_min_version: String,
    /// `--kubeconfig`: kubeconfig of the kubelet itself.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubeconfig_path: String,
    /// `--require-kubeconfig`: fail without a kubeconfig.
    #[serde(skip_serializing_if = "is_zero")]
    pub require_kubeconfig: Option<bool>,
    /// Format of the log: `text` or `json`.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_format: String,
    /// `--v` (left out when `0`): verbosity of the log.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: Option<i32>,
    /// Folder of static pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_manifest_path: String,
    /// `--hostname-override`: node name in place of the host's name.
    #[serde(skip_serializing_if = "is_zero")]
    pub hostname_override: String,
    /// Image of the pause container; no longer a flag.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_infra_container_image: String,
    /// Whether pods get the runtime's seccomp profile unless they say otherwise.
    #[serde(skip_serializing_if = "is_zero")]
    pub seccomp_default: Option<bool>,
    /// `--seccomp-profile-root`: folder of seccomp profiles.
    #[serde(skip_serializing_if = "is_zero")]
    pub seccomp_profile_root: Option<String>,
    /// `--allow-privileged`: let containers be privileged.
    #[serde(skip_serializing_if = "is_zero")]
    pub allow_privileged: Option<bool>,
    /// Whether logs, exec and the like are served.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_debugging_handlers: Option<bool>,
    /// `--register-node`: create the Node object.
    #[serde(skip_serializing_if = "is_zero")]
    pub register_node: Option<bool>,
    /// How often the node's status is worked out; must fit the controller manager's
    /// `nodeMonitorGracePeriod`.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_status_update_frequency: Option<Duration>,
    /// DNS domain of the cluster.
    #[serde(skip_serializing_if = "is_zero")]
    pub cluster_domain: String,
    /// Address of the DNS server that pods use.
    #[serde(rename = "clusterDNS", skip_serializing_if = "is_zero")]
    pub cluster_dns: String,
    /// `--network-plugin`: network plugin; Kubernetes before 1.24 only.
    #[serde(skip_serializing_if = "is_zero")]
    pub network_plugin_name: Option<String>,
    /// `--cloud-provider`: `external`, or empty for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub cloud_provider: String,
    /// Cgroup to put the kubelet into.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubelet_cgroups: String,
    /// `--runtime-cgroups`: cgroup that the container runtime is in.
    #[serde(skip_serializing_if = "is_zero")]
    pub runtime_cgroups: String,
    /// Port without authentication; 0 for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub read_only_port: Option<i32>,
    /// Cgroup for all processes that are in none.
    #[serde(skip_serializing_if = "is_zero")]
    pub system_cgroups: String,
    /// Cgroup below which pods are.
    #[serde(skip_serializing_if = "is_zero")]
    pub cgroup_root: String,
    /// `--configure-cbr0`: set up the bridge cbr0.
    #[serde(skip_serializing_if = "is_zero")]
    pub configure_cbr0: Option<bool>,
    /// How a pod reaches itself through its Service: `promiscuous-bridge`, `hairpin-veth` or `none`.
    #[serde(skip_serializing_if = "is_zero")]
    pub hairpin_mode: String,
    /// `--babysit-daemons`: that something restarts the kubelet; removed in 1.7.
    #[serde(skip_serializing_if = "is_zero")]
    pub babysit_daemons: Option<bool>,
    /// Most pods on this node.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_pods: Option<i32>,
    /// `--experimental-nvidia-gpus` (left out when `0`): number of GPUs; removed from Kubernetes.
    #[serde(rename = "nvidiaGPUs", skip_serializing_if = "is_zero")]
    pub nvidia_gpus: i32,
    /// Addresses of pods where no API server assigns them.
    #[serde(rename = "podCIDR", skip_serializing_if = "is_zero")]
    pub pod_cidr: String,
    /// Resolver configuration that pods' is made from.
    #[serde(skip_serializing_if = "is_zero")]
    pub resolv_conf: Option<String>,
    /// `--reconcile-cidr`: take the pod addresses that the API server assigns.
    #[serde(rename = "reconcileCIDR", skip_serializing_if = "is_zero")]
    pub reconcile_cidr: Option<bool>,
    /// `--register-schedulable`: register as schedulable.
    #[serde(skip_serializing_if = "is_zero")]
    pub register_schedulable: Option<bool>,
    /// Whether images are pulled one after the other.
    #[serde(skip_serializing_if = "is_zero")]
    pub serialize_image_pulls: Option<bool>,
    /// `--node-labels`: labels to register the node with.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_labels: BTreeMap<String, String>,
    /// `--non-masquerade-cidr`: destinations that traffic is not masqueraded to.
    #[serde(rename = "nonMasqueradeCIDR", skip_serializing_if = "is_zero")]
    pub non_masquerade_cidr: Option<String>,
    /// `--enable-custom-metrics`: collect custom metrics.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_custom_metrics: Option<bool>,
    /// `--network-plugin-mtu`: MTU for the network plugin.
    #[serde(rename = "networkPluginMTU", skip_serializing_if = "is_zero")]
    pub network_plugin_mtu: Option<i32>,
    /// `--image-minimum-gc-age`: age that an unused image must have before it may be removed.
    #[serde(rename = "imageMinimumGCAge", skip_serializing_if = "is_zero")]
    pub image_minimum_gc_age: Option<Duration>,
    /// Age at which an unused image is removed; 0 for never.
    #[serde(rename = "imageMaximumGCAge", skip_serializing_if = "is_zero")]
    pub image_maximum_gc_age: Option<Duration>,
    /// Most image pulls at a time, where they are not serialized.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_parallel_image_pulls: Option<i32>,
    /// Disk usage from which images are removed.
    #[serde(rename = "imageGCHighThresholdPercent", skip_serializing_if = "is_zero")]
    pub image_gc_high_threshold_percent: Option<i32>,
    /// Disk usage down to which images are removed.
    #[serde(rename = "imageGCLowThresholdPercent", skip_serializing_if = "is_zero")]
    pub image_gc_low_threshold_percent: Option<i32>,
    /// `--image-pull-progress-deadline`: time without progress after which a pull is given up.
    #[serde(skip_serializing_if = "is_zero")]
    pub image_pull_progress_deadline: Option<Duration>,
    /// Thresholds of immediate eviction, such as `memory.available<100Mi`, separated by commas.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_hard: Option<String>,
    /// Thresholds of eviction after a grace period, separated by commas.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_soft: String,
    /// Grace periods of the soft thresholds, such as `memory.available=30s`, separated by commas.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_soft_grace_period: String,
    /// Time before pressure is taken to be over.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_pressure_transition_period: Option<Duration>,
    /// Longest termination of a pod in a soft eviction, in seconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_max_pod_grace_period: i32,
    /// Least to be freed by an eviction, such as `imagefs.available=2Gi`, separated by commas.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_minimum_reclaim: String,
    /// Folder of additional volume plugins.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_plugin_directory: String,
    /// Taints to register the node with.
    #[serde(skip_serializing_if = "is_zero")]
    pub taints: Vec<String>,
    /// Features switched on or off, by name.
    #[serde(skip_serializing_if = "is_zero")]
    pub feature_gates: BTreeMap<String, String>,
    /// Whether the kernel tells of memory thresholds, instead of being asked.
    #[serde(skip_serializing_if = "is_zero")]
    pub kernel_memcg_notification: Option<bool>,
    /// Resources kept for Kubernetes' own daemons, by name.
    #[serde(skip_serializing_if = "is_zero")]
    pub kube_reserved: BTreeMap<String, String>,
    /// Cgroup of Kubernetes' own daemons.
    #[serde(skip_serializing_if = "is_zero")]
    pub kube_reserved_cgroup: String,
    /// Resources kept for the operating system, by name.
    #[serde(skip_serializing_if = "is_zero")]
    pub system_reserved: BTreeMap<String, String>,
    /// Cgroup of the operating system's daemons.
    #[serde(skip_serializing_if = "is_zero")]
    pub system_reserved_cgroup: String,
    /// What reservations are enforced on: `none`, or of `pods`, `system-reserved`, `kube-reserved`,
    /// separated by commas.
    #[serde(skip_serializing_if = "is_zero")]
    pub enforce_node_allocatable: String,
    /// `--runtime-request-timeout`: timeout of requests to the runtime, long-running ones excepted.
    #[serde(skip_serializing_if = "is_zero")]
    pub runtime_request_timeout: Option<Duration>,
    /// `--volume-stats-agg-period`: how often disk usage of volumes is worked out.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_stats_agg_period: Option<Duration>,
    /// Whether not to start on a machine with swap.
    #[serde(skip_serializing_if = "is_zero")]
    pub fail_swap_on: Option<bool>,
    /// `--experimental-allowed-unsafe-sysctls`: unsafe sysctls that pods may set; an old name.
    #[serde(skip_serializing_if = "is_zero")]
    pub experimental_allowed_unsafe_sysctls: Vec<String>,
    /// Unsafe sysctls that pods may set.
    #[serde(skip_serializing_if = "is_zero")]
    pub allowed_unsafe_sysctls: Vec<String>,
    /// `--streaming-connection-idle-timeout`: idle time after which exec, attach and port-forward are
    /// closed.
    #[serde(skip_serializing_if = "is_zero")]
    pub streaming_connection_idle_timeout: Option<Duration>,
    /// `--root-dir`: folder of the kubelet's files.
    #[serde(skip_serializing_if = "is_zero")]
    pub root_dir: String,
    /// Whether bearer tokens are verified by the API server.
    #[serde(skip_serializing_if = "is_zero")]
    pub authentication_token_webhook: Option<bool>,
    /// `--authentication-token-webhook-cache-ttl`: how long a verified token is remembered.
    #[serde(rename = "authenticationTokenWebhookCacheTTL", skip_serializing_if = "is_zero")]
    pub authentication_token_webhook_cache_ttl: Option<Duration>,
    /// Whether CPU limits are enforced by quota.
    #[serde(rename = "cpuCFSQuota", skip_serializing_if = "is_zero")]
    pub cpu_cfs_quota: Option<bool>,
    /// Period of the CPU quota.
    #[serde(rename = "cpuCFSQuotaPeriod", skip_serializing_if = "is_zero")]
    pub cpu_cfs_quota_period: Option<Duration>,
    /// How CPUs are assigned: `none` or `static`.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_manager_policy: String,
    /// Most image pulls a second; 0 for no limit.
    #[serde(rename = "registryPullQPS", skip_serializing_if = "is_zero")]
    pub registry_pull_qps: Option<i32>,
    /// `--registry-burst`: most image pulls at once, above the rate.
    #[serde(skip_serializing_if = "is_zero")]
    pub registry_burst: Option<i32>,
    /// How resources are aligned to NUMA nodes: `none`, `best-effort`, `restricted` or
    /// `single-numa-node`.
    #[serde(skip_serializing_if = "is_zero")]
    pub topology_manager_policy: String,
    /// Whether client certificates are renewed before they expire.
    #[serde(skip_serializing_if = "is_zero")]
    pub rotate_certificates: Option<bool>,
    /// Whether not to start where kernel settings are not as the kubelet wants them.
    #[serde(skip_serializing_if = "is_zero")]
    pub protect_kernel_defaults: Option<bool>,
    /// Who manages cgroups: `systemd` or `cgroupfs`.
    #[serde(skip_serializing_if = "is_zero")]
    pub cgroup_driver: String,
    /// `--housekeeping-interval`: how often containers are measured.
    #[serde(skip_serializing_if = "is_zero")]
    pub housekeeping_interval: Option<Duration>,
    /// Most events a second; 0 for no limit.
    #[serde(rename = "eventQPS", skip_serializing_if = "is_zero")]
    pub event_qps: Option<i32>,
    /// `--event-burst`: most events at once, above the rate.
    #[serde(skip_serializing_if = "is_zero")]
    pub event_burst: Option<i32>,
    /// Size at which a container's log is rotated, such as `10Mi`.
    #[serde(skip_serializing_if = "is_zero")]
    pub container_log_max_size: String,
    /// Files kept of a container's log.
    #[serde(skip_serializing_if = "is_zero")]
    pub container_log_max_files: Option<i32>,
    /// `--enable-cadvisor-json-endpoints`: serve cAdvisor's JSON.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_cadvisor_json_endpoints: Option<bool>,
    /// Most processes in a pod; -1 for no limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_pids_limit: Option<i64>,
    /// `--experimental-allocatable-ignore-eviction`: leave eviction thresholds out of what is
    /// allocatable.
    #[serde(skip_serializing_if = "is_zero")]
    pub experimental_allocatable_ignore_eviction: Option<bool>,
    /// How long the node's shutdown waits for pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub shutdown_grace_period: Option<Duration>,
    /// How much of that is for critical pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub shutdown_grace_period_critical_pods: Option<Duration>,
    /// What swap pods may use: `NoSwap` or `LimitedSwap`.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_swap_behavior: String,
    /// Longest wait before a failing container is restarted.
    #[serde(skip_serializing_if = "is_zero")]
    pub crash_loop_back_off_max_container_restart_period: Option<Duration>,
    /// `--kube-api-qps`: most requests to the API server a second.
    #[serde(rename = "kubeAPIQPS", skip_serializing_if = "is_zero")]
    pub kube_api_qps: Option<i32>,
    /// Most events a second that are recorded.
    #[serde(rename = "eventRecordQPS", skip_serializing_if = "is_zero")]
    pub event_record_qps: Option<i32>,
    /// Duration of the node's lease, in seconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_lease_duration_seconds: Option<i32>,
}
