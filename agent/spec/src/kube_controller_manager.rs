//! kOps' settings of kube-controller-manager.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::duration::Duration;
use super::go_yaml::is_zero;
use super::kube_scheduler::LeaderElectionConfiguration;
use super::scalars::Quantity;

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeControllerManagerConfig {
    /// `--master`: address of the API server.
    pub master: String,
    /// `--logging-format` (left out when `text`): format of the log: `text` or `json`.
    pub log_format: String,
    /// `--v` (left out when `0`): verbosity of the log.
    pub log_level: i32,
    /// `--service-account-private-key-file`: file of the key that signs service account tokens.
    pub service_account_private_key_file: String,
    pub image: String,
    /// `--cloud-provider`: `external`. Empty means no cloud provider.
    pub cloud_provider: String,
    /// `--cluster-name`: prefix of the names of cloud resources.
    pub cluster_name: String,
    /// `--cluster-cidr`: addresses of pods.
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: String,
    /// `--allocate-node-cidrs`: assign a range of pod addresses to each node.
    #[serde(rename = "allocateNodeCIDRs")]
    pub allocate_node_cidrs: Option<bool>,
    /// `--node-cidr-mask-size`: prefix length of a node's range of pod addresses.
    #[serde(rename = "nodeCIDRMaskSize")]
    pub node_cidr_mask_size: Option<i32>,
    /// `--configure-cloud-routes`: add routes to the nodes' ranges of pod addresses to the cloud's network.
    pub configure_cloud_routes: Option<bool>,
    /// `--controllers`: controllers to run. `*` means the default controllers, and `-name` disables the
    /// controller `name`.
    pub controllers: Vec<String>,
    /// `--cidr-allocator-type`: how nodes get their ranges of pod addresses.
    pub cidr_allocator_type: Option<String>,
    /// `--root-ca-file`: file of CA certificates with which pods verify the API server.
    #[serde(rename = "rootCAFile")]
    pub root_ca_file: String,
    pub leader_election: Option<LeaderElectionConfiguration>,
    /// `--attach-detach-reconcile-sync-period`: interval between verifications of attached volumes.
    pub attach_detach_reconcile_sync_period: Option<Duration>,
    /// `--disable-attach-detach-reconcile-sync`: do not verify attached volumes.
    pub disable_attach_detach_reconcile_sync: Option<bool>,
    /// `--terminated-pod-gc-threshold`: number of terminated pods to keep. 0 keeps all.
    #[serde(rename = "terminatedPodGCThreshold")]
    pub terminated_pod_gc_threshold: Option<i32>,
    /// `--node-monitor-period`: interval between checks of the nodes' status.
    pub node_monitor_period: Option<Duration>,
    /// `--node-monitor-grace-period`: time without a status update after which a node counts as unhealthy.
    pub node_monitor_grace_period: Option<Duration>,
    /// `--pod-eviction-timeout`: time after which pods are evicted from a failed node.
    pub pod_eviction_timeout: Option<Duration>,
    /// `--use-service-account-credentials`: give each controller its own service account.
    pub use_service_account_credentials: Option<bool>,
    /// `--horizontal-pod-autoscaler-sync-period`: interval between calculations of the desired number of pods.
    pub horizontal_pod_autoscaler_sync_period: Option<Duration>,
    /// `--horizontal-pod-autoscaler-downscale-delay`: minimum time between two scale-downs.
    pub horizontal_pod_autoscaler_downscale_delay: Option<Duration>,
    /// `--horizontal-pod-autoscaler-downscale-stabilization`: a scale-down does not go below the highest recommendation of this period.
    pub horizontal_pod_autoscaler_downscale_stabilization: Option<Duration>,
    /// `--horizontal-pod-autoscaler-upscale-delay`: minimum time between two scale-ups.
    pub horizontal_pod_autoscaler_upscale_delay: Option<Duration>,
    /// `--horizontal-pod-autoscaler-initial-readiness-delay`: time after a pod's start in which a readiness change counts as the pod's
    /// first readiness.
    pub horizontal_pod_autoscaler_initial_readiness_delay: Option<Duration>,
    /// `--horizontal-pod-autoscaler-cpu-initialization-period`: time after a pod's start in which the autoscaler may ignore the pod's CPU
    /// usage.
    pub horizontal_pod_autoscaler_cpu_initialization_period: Option<Duration>,
    /// `--horizontal-pod-autoscaler-tolerance`: minimum relative difference between actual and desired metrics that causes scaling.
    pub horizontal_pod_autoscaler_tolerance: Option<Quantity>,
    /// `--horizontal-pod-autoscaler-use-rest-clients`: read metrics through the API.
    pub horizontal_pod_autoscaler_use_rest_clients: Option<bool>,
    /// `--experimental-cluster-signing-duration`: old name of `--cluster-signing-duration`.
    pub experimental_cluster_signing_duration: Option<Duration>,
    /// `--cluster-signing-duration`: lifetime of signed certificates.
    #[serde(rename = "ClusterSigningDuration")]
    pub cluster_signing_duration: Option<Duration>,
    pub feature_gates: BTreeMap<String, String>,
    /// `--tls-cert-file`: file of the serving certificate.
    pub tls_cert_file: Option<String>,
    pub tls_cipher_suites: Vec<String>,
    pub tls_min_version: String,
    /// `--tls-private-key-file`: file of the serving key.
    pub tls_private_key_file: String,
    /// `--min-resync-period`: minimum time between two complete reads of the watched objects.
    pub min_resync_period: String,
    /// `--kube-api-qps`: maximum number of requests per second to the API server.
    #[serde(rename = "kubeAPIQPS")]
    pub kube_api_qps: Option<Quantity>,
    /// `--kube-api-burst`: maximum number of requests to the API server in a short burst, which may exceed `kube_api_qps`.
    #[serde(rename = "kubeAPIBurst")]
    pub kube_api_burst: Option<i32>,
    /// `--concurrent-deployment-syncs`: number of Deployments that are handled at the same time.
    pub concurrent_deployment_syncs: Option<i32>,
    /// `--concurrent-endpoint-syncs`: number of Endpoints that are handled at the same time.
    pub concurrent_endpoint_syncs: Option<i32>,
    /// `--concurrent-namespace-syncs`: number of Namespaces that are handled at the same time.
    pub concurrent_namespace_syncs: Option<i32>,
    /// `--concurrent-replicaset-syncs`: number of ReplicaSets that are handled at the same time.
    pub concurrent_replicaset_syncs: Option<i32>,
    /// `--concurrent-service-syncs`: number of Services that are handled at the same time.
    pub concurrent_service_syncs: Option<i32>,
    /// `--concurrent-resource-quota-syncs`: number of ResourceQuotas that are handled at the same time.
    pub concurrent_resource_quota_syncs: Option<i32>,
    /// `--concurrent-serviceaccount-token-syncs`: number of service account tokens that are handled at the
    /// same time.
    pub concurrent_serviceaccount_token_syncs: Option<i32>,
    /// `--concurrent-rc-syncs`: number of ReplicationControllers that are handled at the same time.
    #[serde(rename = "concurrentRCSyncs")]
    pub concurrent_rc_syncs: Option<i32>,
    /// `--concurrent-horizontal-pod-autoscaler-syncs`: number of HorizontalPodAutoscalers that are handled at
    /// the same time. kOps itself misspells the name of this field.
    pub concurrent_horizontal_pod_austoscaler_syncs: Option<i32>,
    /// `--concurrent-job-syncs`: number of Jobs that are handled at the same time.
    pub concurrent_job_syncs: Option<i32>,
    /// `--authentication-kubeconfig`: kubeconfig for asking the API server to verify clients' credentials.
    pub authentication_kubeconfig: String,
    /// `--authorization-kubeconfig`: kubeconfig for asking the API server whether a client's request is allowed.
    pub authorization_kubeconfig: String,
    /// `--authorization-always-allow-paths`: paths that need no authorization.
    pub authorization_always_allow_paths: Vec<String>,
    /// `--external-cloud-volume-plugin`: volume plugin for the cloud if the cloud provider is external.
    pub external_cloud_volume_plugin: String,
    /// `--endpoint-updates-batch-period`: time to collect changes of pods before an update of Endpoints.
    pub endpoint_updates_batch_period: Option<Duration>,
    /// `--endpointslice-updates-batch-period`: time to collect changes of pods before an update of EndpointSlices.
    pub endpoint_slice_updates_batch_period: Option<Duration>,
    /// `--profiling`: serve profiling data.
    pub enable_profiling: Option<bool>,
    /// `--contention-profiling`: collect profiles of lock contention.
    pub enable_contention_profiling: Option<bool>,
    /// `--enable-leader-migration`: share the leader lock with the cloud-controller-manager while controllers move to it.
    pub enable_leader_migration: Option<bool>,
    pub cpu_request: Option<Quantity>,
    pub cpu_limit: Option<Quantity>,
    pub memory_request: Option<Quantity>,
    pub memory_limit: Option<Quantity>,
}
