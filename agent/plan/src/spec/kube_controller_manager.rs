//! What kOps wants of kube-controller-manager.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::duration::Duration;
use super::kube_scheduler::LeaderElectionConfiguration;
use super::omit::is_zero;
use super::scalars::Quantity;

/// `KubeControllerManagerConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeControllerManagerConfig {
    /// `--master`: Master.
    #[serde(skip_serializing_if = "is_zero")]
    pub master: String,
    /// `--logging-format`: Log format.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_format: String,
    /// `--v`: Log level.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: i32,
    /// `--service-account-private-key-file`: Service account private key file.
    #[serde(skip_serializing_if = "is_zero")]
    pub service_account_private_key_file: String,
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// `--cloud-provider`: Cloud provider.
    #[serde(skip_serializing_if = "is_zero")]
    pub cloud_provider: String,
    /// `--cluster-name`: Cluster name.
    #[serde(skip_serializing_if = "is_zero")]
    pub cluster_name: String,
    /// `--cluster-cidr`: Cluster CIDR.
    #[serde(rename = "clusterCIDR", skip_serializing_if = "is_zero")]
    pub cluster_cidr: String,
    /// `--allocate-node-cidrs`: Allocate node cidrs.
    #[serde(rename = "allocateNodeCIDRs", skip_serializing_if = "is_zero")]
    pub allocate_node_cidrs: Option<bool>,
    /// `--node-cidr-mask-size`: Node CIDR mask size.
    #[serde(rename = "nodeCIDRMaskSize", skip_serializing_if = "is_zero")]
    pub node_cidr_mask_size: Option<i32>,
    /// `--configure-cloud-routes`: Configure cloud routes.
    #[serde(skip_serializing_if = "is_zero")]
    pub configure_cloud_routes: Option<bool>,
    /// `--controllers`: Controllers.
    #[serde(skip_serializing_if = "is_zero")]
    pub controllers: Vec<String>,
    /// `--cidr-allocator-type`: Cidr allocator type.
    #[serde(skip_serializing_if = "is_zero")]
    pub cidr_allocator_type: Option<String>,
    /// `--root-ca-file`: Root CA file.
    #[serde(rename = "rootCAFile", skip_serializing_if = "is_zero")]
    pub root_ca_file: String,
    /// Leader election.
    #[serde(skip_serializing_if = "is_zero")]
    pub leader_election: Option<LeaderElectionConfiguration>,
    /// `--attach-detach-reconcile-sync-period`: Attach detach reconcile sync period.
    #[serde(skip_serializing_if = "is_zero")]
    pub attach_detach_reconcile_sync_period: Option<Duration>,
    /// `--disable-attach-detach-reconcile-sync`: Disable attach detach reconcile sync.
    #[serde(skip_serializing_if = "is_zero")]
    pub disable_attach_detach_reconcile_sync: Option<bool>,
    /// `--terminated-pod-gc-threshold`: Terminated pod GC threshold.
    #[serde(rename = "terminatedPodGCThreshold", skip_serializing_if = "is_zero")]
    pub terminated_pod_gc_threshold: Option<i32>,
    /// `--node-monitor-period`: Node monitor period.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_monitor_period: Option<Duration>,
    /// `--node-monitor-grace-period`: Node monitor grace period.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_monitor_grace_period: Option<Duration>,
    /// `--pod-eviction-timeout`: Pod eviction timeout.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_eviction_timeout: Option<Duration>,
    /// `--use-service-account-credentials`: Use service account credentials.
    #[serde(skip_serializing_if = "is_zero")]
    pub use_service_account_credentials: Option<bool>,
    /// `--horizontal-pod-autoscaler-sync-period`: Horizontal pod autoscaler sync period.
    #[serde(skip_serializing_if = "is_zero")]
    pub horizontal_pod_autoscaler_sync_period: Option<Duration>,
    /// `--horizontal-pod-autoscaler-downscale-delay`: Horizontal pod autoscaler downscale delay.
    #[serde(skip_serializing_if = "is_zero")]
    pub horizontal_pod_autoscaler_downscale_delay: Option<Duration>,
    /// `--horizontal-pod-autoscaler-downscale-stabilization`: Horizontal pod autoscaler downscale
    /// stabilization.
    #[serde(skip_serializing_if = "is_zero")]
    pub horizontal_pod_autoscaler_downscale_stabilization: Option<Duration>,
    /// `--horizontal-pod-autoscaler-upscale-delay`: Horizontal pod autoscaler upscale delay.
    #[serde(skip_serializing_if = "is_zero")]
    pub horizontal_pod_autoscaler_upscale_delay: Option<Duration>,
    /// `--horizontal-pod-autoscaler-initial-readiness-delay`: Horizontal pod autoscaler initial
    /// readiness delay.
    #[serde(skip_serializing_if = "is_zero")]
    pub horizontal_pod_autoscaler_initial_readiness_delay: Option<Duration>,
    /// `--horizontal-pod-autoscaler-cpu-initialization-period`: Horizontal pod autoscaler cpu
    /// initialization period.
    #[serde(skip_serializing_if = "is_zero")]
    pub horizontal_pod_autoscaler_cpu_initialization_period: Option<Duration>,
    /// `--horizontal-pod-autoscaler-tolerance`: Horizontal pod autoscaler tolerance.
    #[serde(skip_serializing_if = "is_zero")]
    pub horizontal_pod_autoscaler_tolerance: Option<Quantity>,
    /// `--horizontal-pod-autoscaler-use-rest-clients`: Horizontal pod autoscaler use rest clients.
    #[serde(skip_serializing_if = "is_zero")]
    pub horizontal_pod_autoscaler_use_rest_clients: Option<bool>,
    /// `--experimental-cluster-signing-duration`: Experimental cluster signing duration.
    #[serde(skip_serializing_if = "is_zero")]
    pub experimental_cluster_signing_duration: Option<Duration>,
    /// `--cluster-signing-duration`: Cluster signing duration.
    #[serde(rename = "ClusterSigningDuration", skip_serializing_if = "is_zero")]
    pub cluster_signing_duration: Option<Duration>,
    /// `--feature-gates`: Feature gates.
    #[serde(skip_serializing_if = "is_zero")]
    pub feature_gates: BTreeMap<String, String>,
    /// `--tls-cert-file`: Tls cert file.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_cert_file: Option<String>,
    /// `--tls-cipher-suites`: Tls cipher suites.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_cipher_suites: Vec<String>,
    /// `--tls-min-version`: Tls min version.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_min_version: String,
    /// `--tls-private-key-file`: Tls private key file.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_private_key_file: String,
    /// `--min-resync-period`: Min resync period.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_resync_period: String,
    /// `--kube-api-qps`: Kube API QPS.
    #[serde(rename = "kubeAPIQPS", skip_serializing_if = "is_zero")]
    pub kube_api_qps: Option<Quantity>,
    /// `--kube-api-burst`: Kube API burst.
    #[serde(rename = "kubeAPIBurst", skip_serializing_if = "is_zero")]
    pub kube_api_burst: Option<i32>,
    /// `--concurrent-deployment-syncs`: Concurrent deployment syncs.
    #[serde(skip_serializing_if = "is_zero")]
    pub concurrent_deployment_syncs: Option<i32>,
    /// `--concurrent-endpoint-syncs`: Concurrent endpoint syncs.
    #[serde(skip_serializing_if = "is_zero")]
    pub concurrent_endpoint_syncs: Option<i32>,
    /// `--concurrent-namespace-syncs`: Concurrent namespace syncs.
    #[serde(skip_serializing_if = "is_zero")]
    pub concurrent_namespace_syncs: Option<i32>,
    /// `--concurrent-replicaset-syncs`: Concurrent replicaset syncs.
    #[serde(skip_serializing_if = "is_zero")]
    pub concurrent_replicaset_syncs: Option<i32>,
    /// `--concurrent-service-syncs`: Concurrent service syncs.
    #[serde(skip_serializing_if = "is_zero")]
    pub concurrent_service_syncs: Option<i32>,
    /// `--concurrent-resource-quota-syncs`: Concurrent resource quota syncs.
    #[serde(skip_serializing_if = "is_zero")]
    pub concurrent_resource_quota_syncs: Option<i32>,
    /// `--concurrent-serviceaccount-token-syncs`: Concurrent serviceaccount token syncs.
    #[serde(skip_serializing_if = "is_zero")]
    pub concurrent_serviceaccount_token_syncs: Option<i32>,
    /// `--concurrent-rc-syncs`: Concurrent RC syncs.
    #[serde(rename = "concurrentRCSyncs", skip_serializing_if = "is_zero")]
    pub concurrent_rc_syncs: Option<i32>,
    /// `--concurrent-horizontal-pod-autoscaler-syncs`: Concurrent horizontal pod austoscaler syncs.
    #[serde(skip_serializing_if = "is_zero")]
    pub concurrent_horizontal_pod_austoscaler_syncs: Option<i32>,
    /// `--concurrent-job-syncs`: Concurrent job syncs.
    #[serde(skip_serializing_if = "is_zero")]
    pub concurrent_job_syncs: Option<i32>,
    /// `--authentication-kubeconfig`: Authentication kubeconfig.
    #[serde(skip_serializing_if = "is_zero")]
    pub authentication_kubeconfig: String,
    /// `--authorization-kubeconfig`: Authorization kubeconfig.
    #[serde(skip_serializing_if = "is_zero")]
    pub authorization_kubeconfig: String,
    /// `--authorization-always-allow-paths`: Authorization always allow paths.
    #[serde(skip_serializing_if = "is_zero")]
    pub authorization_always_allow_paths: Vec<String>,
    /// `--external-cloud-volume-plugin`: External cloud volume plugin.
    #[serde(skip_serializing_if = "is_zero")]
    pub external_cloud_volume_plugin: String,
    /// `--endpoint-updates-batch-period`: Endpoint updates batch period.
    #[serde(skip_serializing_if = "is_zero")]
    pub endpoint_updates_batch_period: Option<Duration>,
    /// `--endpointslice-updates-batch-period`: Endpoint slice updates batch period.
    #[serde(skip_serializing_if = "is_zero")]
    pub endpoint_slice_updates_batch_period: Option<Duration>,
    /// `--profiling`: Enable profiling.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_profiling: Option<bool>,
    /// `--contention-profiling`: Enable contention profiling.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_contention_profiling: Option<bool>,
    /// `--enable-leader-migration`: Enable leader migration.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_leader_migration: Option<bool>,
    /// Cpu request.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_request: Option<Quantity>,
    /// Cpu limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_limit: Option<Quantity>,
    /// Memory request.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_request: Option<Quantity>,
    /// Memory limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_limit: Option<Quantity>,
}
