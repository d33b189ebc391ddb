//! kOps' settings of the kubelet.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::duration::Duration;
use super::go_yaml::is_zero;

/// kOps' settings of kubelet. If a field's comment begins with a flag, kubelet gets the field as this flag. All other fields are in
/// kubelet's configuration file. Up to kOps 1.35, most of the other fields are flags, too.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletConfigSpec {
    /// `--api-servers`: addresses of API servers. Only Kubernetes before 1.6 has the flag.
    pub api_servers: String,
    /// Whether the kubelet accepts requests without credentials.
    pub anonymous_auth: Option<bool>,
    /// How requests to the kubelet are authorized: `Webhook` or `AlwaysAllow`.
    pub authorization_mode: String,
    /// `--bootstrap-kubeconfig`: kubeconfig with which kubelet requests its first client certificate.
    pub bootstrap_kubeconfig: String,
    /// File of CA certificates that verify the certificates of kubelet's clients.
    #[serde(rename = "clientCAFile")]
    pub client_ca_file: String,
    /// File of the serving certificate. nodeup sets this field.
    pub tls_cert_file: String,
    /// File of the serving key. nodeup sets this field.
    pub tls_private_key_file: String,
    pub tls_cipher_suites: Vec<String>,
    pub tls_min_version: String,
    /// `--kubeconfig`: kubeconfig with which kubelet reaches the API server.
    pub kubeconfig_path: String,
    /// `--require-kubeconfig`: fail without a kubeconfig.
    pub require_kubeconfig: Option<bool>,
    /// Format of the log: `text` or `json`.
    pub log_format: String,
    /// `--v` (left out when `0`): verbosity of the log.
    pub log_level: Option<i32>,
    pub pod_manifest_path: String,
    /// `--hostname-override`: name of the Node, if it is not the host's name.
    pub hostname_override: String,
    /// `--pod-infra-container-image` (kOps up to 1.35): image of the pause container.
    pub pod_infra_container_image: String,
    /// Whether pods that set no seccomp profile get the container runtime's default profile.
    pub seccomp_default: Option<bool>,
    /// `--seccomp-profile-root`: folder of seccomp profiles.
    pub seccomp_profile_root: Option<String>,
    /// `--allow-privileged`: allow privileged containers.
    pub allow_privileged: Option<bool>,
    /// Whether the kubelet serves container logs, exec, attach and port-forward.
    pub enable_debugging_handlers: Option<bool>,
    /// `--register-node`: create the Node object.
    pub register_node: Option<bool>,
    /// Interval between calculations of the node's status. It must be shorter than the controller manager's `nodeMonitorGracePeriod`.
    pub node_status_update_frequency: Option<Duration>,
    pub cluster_domain: String,
    /// Address of the DNS server that pods use.
    #[serde(rename = "clusterDNS")]
    pub cluster_dns: String,
    /// `--network-plugin`: network plugin. Only Kubernetes before 1.24 has the flag.
    pub network_plugin_name: Option<String>,
    /// `--cloud-provider`: `external`. Empty means no cloud provider.
    pub cloud_provider: String,
    /// Cgroup to which the kubelet moves itself.
    pub kubelet_cgroups: String,
    /// `--runtime-cgroups`: cgroup of the container runtime.
    pub runtime_cgroups: String,
    /// Port without authentication. 0 disables the port.
    pub read_only_port: Option<i32>,
    /// Cgroup to which the kubelet moves all system processes that have no cgroup.
    pub system_cgroups: String,
    /// The parent cgroup of pods.
    pub cgroup_root: String,
    /// `--configure-cbr0`: set up the bridge cbr0.
    pub configure_cbr0: Option<bool>,
    /// How a pod can reach itself through its Service: `promiscuous-bridge`, `hairpin-veth` or `none`.
    pub hairpin_mode: String,
    /// `--babysit-daemons`: a supervisor restarts the kubelet. Kubernetes 1.7 removed the flag.
    pub babysit_daemons: Option<bool>,
    pub max_pods: Option<i32>,
    /// `--experimental-nvidia-gpus` (left out when `0`): number of GPUs. Kubernetes has removed the flag.
    #[serde(rename = "nvidiaGPUs")]
    pub nvidia_gpus: i32,
    /// Range of addresses for the pods of this node, if no API server assigns a range.
    #[serde(rename = "podCIDR")]
    pub pod_cidr: String,
    /// Path of the resolver configuration file from which the kubelet makes the DNS configuration of pods.
    pub resolv_conf: Option<String>,
    /// `--reconcile-cidr`: use the range of pod addresses that the API server assigns.
    #[serde(rename = "reconcileCIDR")]
    pub reconcile_cidr: Option<bool>,
    /// `--register-schedulable`: register the node as schedulable.
    pub register_schedulable: Option<bool>,
    /// Whether the kubelet pulls only one image at a time.
    pub serialize_image_pulls: Option<bool>,
    /// `--node-labels`: labels to register the node with.
    pub node_labels: BTreeMap<String, String>,
    /// `--non-masquerade-cidr`: destination range to which traffic is not masqueraded.
    #[serde(rename = "nonMasqueradeCIDR")]
    pub non_masquerade_cidr: Option<String>,
    /// `--enable-custom-metrics`: collect custom metrics.
    pub enable_custom_metrics: Option<bool>,
    /// `--network-plugin-mtu`: MTU for the network plugin.
    #[serde(rename = "networkPluginMTU")]
    pub network_plugin_mtu: Option<i32>,
    /// `--image-minimum-gc-age`: minimum age of an unused image before the kubelet may remove it.
    #[serde(rename = "imageMinimumGCAge")]
    pub image_minimum_gc_age: Option<Duration>,
    /// Age at which the kubelet removes an unused image. 0 means never.
    #[serde(rename = "imageMaximumGCAge")]
    pub image_maximum_gc_age: Option<Duration>,
    /// Maximum number of parallel image pulls, if `serialize_image_pulls` is false.
    pub max_parallel_image_pulls: Option<i32>,
    /// Disk usage in percent at which the kubelet starts to remove images.
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub image_gc_high_threshold_percent: Option<i32>,
    /// Disk usage in percent at which the kubelet stops removing images.
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub image_gc_low_threshold_percent: Option<i32>,
    /// `--image-pull-progress-deadline`: time without progress after which the kubelet cancels an image pull.
    pub image_pull_progress_deadline: Option<Duration>,
    /// Thresholds for immediate eviction, such as `memory.available<100Mi`, separated by commas.
    pub eviction_hard: Option<String>,
    /// Thresholds for eviction after a grace period, separated by commas.
    pub eviction_soft: String,
    /// Grace periods for the thresholds in `eviction_soft`, such as `memory.available=30s`, separated by commas.
    pub eviction_soft_grace_period: String,
    /// Time without pressure before the kubelet ends a pressure condition.
    pub eviction_pressure_transition_period: Option<Duration>,
    /// Maximum grace period of a pod in a soft eviction, in seconds.
    pub eviction_max_pod_grace_period: i32,
    /// Minimum amounts that an eviction must free, such as `imagefs.available=2Gi`, separated by commas.
    pub eviction_minimum_reclaim: String,
    pub volume_plugin_directory: String,
    /// Taints with which the kubelet registers the node.
    pub taints: Vec<String>,
    pub feature_gates: BTreeMap<String, String>,
    /// Whether the kernel notifies the kubelet when memory usage crosses a threshold. Otherwise the kubelet polls the memory usage.
    pub kernel_memcg_notification: Option<bool>,
    /// Resources to reserve for Kubernetes' own daemons, by name.
    pub kube_reserved: BTreeMap<String, String>,
    pub kube_reserved_cgroup: String,
    /// Resources to reserve for the operating system, by name.
    pub system_reserved: BTreeMap<String, String>,
    pub system_reserved_cgroup: String,
    /// Cgroups for which the kubelet enforces reservations: `none`, or a list of `pods`, `system-reserved` and `kube-reserved`, separated
    /// by commas.
    pub enforce_node_allocatable: String,
    /// `--runtime-request-timeout`: timeout of requests to the container runtime, except for long-running
    /// requests.
    pub runtime_request_timeout: Option<Duration>,
    /// `--volume-stats-agg-period`: interval between calculations of the volumes' disk usage.
    pub volume_stats_agg_period: Option<Duration>,
    /// Whether the kubelet refuses to start on a machine with swap.
    pub fail_swap_on: Option<bool>,
    /// `--experimental-allowed-unsafe-sysctls`: old name of `--allowed-unsafe-sysctls`.
    pub experimental_allowed_unsafe_sysctls: Vec<String>,
    pub allowed_unsafe_sysctls: Vec<String>,
    /// `--streaming-connection-idle-timeout`: idle time after which the kubelet closes exec, attach and port-forward connections.
    pub streaming_connection_idle_timeout: Option<Duration>,
    /// `--root-dir`: folder of the kubelet's files.
    pub root_dir: String,
    /// Whether the API server verifies bearer tokens for the kubelet.
    pub authentication_token_webhook: Option<bool>,
    /// `--authentication-token-webhook-cache-ttl`: how long a verified token is cached.
    #[serde(rename = "authenticationTokenWebhookCacheTTL")]
    pub authentication_token_webhook_cache_ttl: Option<Duration>,
    /// Whether the kernel enforces CPU limits by CFS quota.
    #[serde(rename = "cpuCFSQuota")]
    pub cpu_cfs_quota: Option<bool>,
    #[serde(rename = "cpuCFSQuotaPeriod")]
    pub cpu_cfs_quota_period: Option<Duration>,
    /// How the kubelet assigns CPUs to containers: `none` or `static`.
    pub cpu_manager_policy: String,
    /// Maximum number of image pulls per second. 0 means no limit.
    #[serde(rename = "registryPullQPS")]
    pub registry_pull_qps: Option<i32>,
    /// `--registry-burst`: maximum number of image pulls in a short burst, which may exceed `registry_pull_qps`.
    pub registry_burst: Option<i32>,
    /// How the kubelet aligns resources to NUMA nodes: `none`, `best-effort`, `restricted` or `single-numa-node`.
    pub topology_manager_policy: String,
    /// Whether the kubelet renews its client certificate before the certificate expires.
    pub rotate_certificates: Option<bool>,
    /// Whether the kubelet refuses to start if kernel settings differ from the values that it expects.
    pub protect_kernel_defaults: Option<bool>,
    /// The cgroup driver: `systemd` or `cgroupfs`.
    pub cgroup_driver: String,
    /// `--housekeeping-interval`: interval between measurements of containers.
    pub housekeeping_interval: Option<Duration>,
    /// Maximum number of events per second. 0 means no limit.
    #[serde(rename = "eventQPS")]
    pub event_qps: Option<i32>,
    /// `--event-burst`: maximum number of events in a short burst, which may exceed `event_qps`.
    pub event_burst: Option<i32>,
    /// Size at which a container's log is rotated, such as `10Mi`.
    pub container_log_max_size: String,
    pub container_log_max_files: Option<i32>,
    /// `--enable-cadvisor-json-endpoints`: serve cAdvisor's metrics as JSON.
    pub enable_cadvisor_json_endpoints: Option<bool>,
    /// Maximum number of processes in a pod. -1 means no limit.
    pub pod_pids_limit: Option<i64>,
    /// `--experimental-allocatable-ignore-eviction`: do not subtract eviction thresholds from the allocatable resources.
    pub experimental_allocatable_ignore_eviction: Option<bool>,
    /// Time that the node's shutdown waits for pods to end.
    pub shutdown_grace_period: Option<Duration>,
    /// The part of `shutdown_grace_period` for critical pods.
    pub shutdown_grace_period_critical_pods: Option<Duration>,
    /// How pods may use swap: `NoSwap` or `LimitedSwap`.
    pub memory_swap_behavior: String,
    /// Maximum delay before a restart of a failing container.
    pub crash_loop_back_off_max_container_restart_period: Option<Duration>,
    /// `--kube-api-qps`: maximum number of requests per second to the API server.
    #[serde(rename = "kubeAPIQPS")]
    pub kube_api_qps: Option<i32>,
    /// Maximum number of events per second that are recorded.
    #[serde(rename = "eventRecordQPS")]
    pub event_record_qps: Option<i32>,
    pub node_lease_duration_seconds: Option<i32>,
}
