//! kOps' settings of kube-apiserver.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::duration::Duration;
use super::go_yaml::is_zero;
use super::scalars::Quantity;

/// kOps' settings of kube-apiserver. Its OIDC flags come from
/// [`OIDCAuthenticationSpec`](super::OIDCAuthenticationSpec), except for the CA file.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeAPIServerConfig {
    pub image: String,
    /// Whether basic authentication is disabled. kOps no longer uses this field.
    pub disable_basic_auth: Option<bool>,
    /// `--logging-format` (left out when `text`): format of the log: `text` or `json`.
    pub log_format: String,
    /// `--v` (left out when `0`): verbosity of the log.
    pub log_level: i32,
    /// `--cloud-provider`: `external`. Empty means no cloud provider.
    pub cloud_provider: String,
    /// `--etcd-compaction-interval`: interval between the API server's requests to compact etcd.
    pub compaction_interval: Option<Duration>,
    /// `--secure-port`: port with TLS.
    pub secure_port: i32,
    /// `--insecure-port`: port without TLS. 0 disables the port.
    pub insecure_port: Option<i32>,
    /// `--address`: old name of `--insecure-bind-address`.
    pub address: String,
    /// `--advertise-address`: address that the API server advertises to the cluster.
    pub advertise_address: String,
    /// `--bind-address`: address of the port with TLS.
    pub bind_address: String,
    /// `--insecure-bind-address`: address of the port without TLS.
    pub insecure_bind_address: String,
    pub enable_bootstrap_token_auth: Option<bool>,
    /// `--enable-aggregator-routing`: send requests for an aggregated API to the addresses of its endpoints, not to its Service.
    pub enable_aggregator_routing: Option<bool>,
    /// `--admission-control`: admission plugins, in order. Deprecated: use `--enable-admission-plugins`.
    pub admission_control: Vec<String>,
    /// Admission plugins to enable in addition to the plugins that kOps enables.
    pub append_admission_plugins: Vec<String>,
    pub enable_admission_plugins: Vec<String>,
    pub disable_admission_plugins: Vec<String>,
    pub admission_control_config_file: String,
    #[serde(rename = "serviceClusterIPRange")]
    pub service_cluster_ip_range: String,
    pub service_node_port_range: String,
    /// `--etcd-servers`: URLs of etcd.
    pub etcd_servers: Vec<String>,
    /// `--etcd-servers-overrides`: URLs of etcd for some resources, as in `/events#https://…`.
    pub etcd_servers_overrides: Vec<String>,
    /// `--etcd-cafile`: file of CA certificates that verify etcd's certificates.
    #[serde(rename = "etcdCAFile")]
    pub etcd_ca_file: String,
    /// `--etcd-certfile`: file of the client certificate for etcd.
    pub etcd_cert_file: String,
    /// `--etcd-keyfile`: file of the client key for etcd.
    pub etcd_key_file: String,
    /// `--basic-auth-file`: file of passwords.
    pub basic_auth_file: String,
    /// `--client-ca-file`: file of CA certificates that verify clients' certificates.
    #[serde(rename = "clientCAFile")]
    pub client_ca_file: String,
    /// `--tls-cert-file`: file of the serving certificate.
    pub tls_cert_file: String,
    /// `--tls-private-key-file`: file of the serving key.
    pub tls_private_key_file: String,
    pub tls_cipher_suites: Vec<String>,
    pub tls_min_version: String,
    /// `--token-auth-file`: file of static tokens.
    pub token_auth_file: String,
    pub allow_privileged: Option<bool>,
    /// `--apiserver-count`: number of API servers.
    pub api_server_count: Option<i32>,
    /// `--runtime-config`: API versions and whether each is enabled.
    pub runtime_config: BTreeMap<String, String>,
    /// `--kubelet-client-certificate`: file of the client certificate for kubelets.
    pub kubelet_client_certificate: String,
    /// `--kubelet-certificate-authority`: file of CA certificates that verify kubelets' certificates.
    pub kubelet_certificate_authority: String,
    /// `--kubelet-client-key`: file of the client key for kubelets.
    pub kubelet_client_key: String,
    /// `--anonymous-auth`: accept requests without credentials.
    pub anonymous_auth: Option<bool>,
    /// `--kubelet-preferred-address-types`: types of kubelets' addresses to connect to, the preferred type first.
    pub kubelet_preferred_address_types: Vec<String>,
    /// `--storage-backend`: kind of store, such as `etcd3`.
    pub storage_backend: Option<String>,
    /// `--oidc-ca-file`: file of CA certificates that verify the OpenID provider's certificate.
    #[serde(rename = "oidcCAFile")]
    pub oidc_ca_file: Option<String>,
    /// `--authentication-config`: file that configures authenticators.
    pub authentication_config_file: String,
    /// `--proxy-client-cert-file`: file of the client certificate for aggregated servers.
    pub proxy_client_cert_file: Option<String>,
    /// `--proxy-client-key-file`: file of the client key for aggregated servers.
    pub proxy_client_key_file: Option<String>,
    /// `--audit-log-format`: format of the audit log: `json` or `legacy`.
    pub audit_log_format: Option<String>,
    /// `--audit-log-path`: file of the audit log; `-` for the standard output.
    pub audit_log_path: Option<String>,
    /// `--audit-log-maxage`: number of days to keep old audit logs.
    pub audit_log_max_age: Option<i32>,
    /// `--audit-log-maxbackup`: number of old audit logs to keep.
    pub audit_log_max_backups: Option<i32>,
    /// `--audit-log-maxsize`: size at which the audit log is rotated, in megabytes.
    pub audit_log_max_size: Option<i32>,
    pub audit_policy_file: String,
    /// `--audit-webhook-batch-buffer-size`: number of events that may wait to be sent.
    pub audit_webhook_batch_buffer_size: Option<i32>,
    /// `--audit-webhook-batch-max-size`: maximum number of events in a batch.
    pub audit_webhook_batch_max_size: Option<i32>,
    /// `--audit-webhook-batch-max-wait`: maximum time before a batch is sent.
    pub audit_webhook_batch_max_wait: Option<Duration>,
    /// `--audit-webhook-batch-throttle-burst`: maximum number of batches in a short burst, which may exceed
    /// `audit_webhook_batch_throttle_qps`.
    pub audit_webhook_batch_throttle_burst: Option<i32>,
    /// `--audit-webhook-batch-throttle-enable`: limit the rate of batches.
    pub audit_webhook_batch_throttle_enable: Option<bool>,
    /// `--audit-webhook-batch-throttle-qps`: maximum number of batches per second.
    pub audit_webhook_batch_throttle_qps: Option<Quantity>,
    /// `--audit-webhook-config-file`: kubeconfig of the audit webhook.
    pub audit_webhook_config_file: String,
    /// `--audit-webhook-initial-backoff`: time before the first retry of a failed batch.
    pub audit_webhook_initial_backoff: Option<Duration>,
    /// `--audit-webhook-mode`: how events are sent: `batch`, `blocking` or `blocking-strict`.
    pub audit_webhook_mode: String,
    /// `--authentication-token-webhook-config-file`: kubeconfig of the webhook that verifies tokens.
    pub authentication_token_webhook_config_file: Option<String>,
    /// `--authentication-token-webhook-cache-ttl`: how long a verified token is cached.
    pub authentication_token_webhook_cache_ttl: Option<Duration>,
    /// `--authorization-mode`: authorizers, in order, separated by commas.
    pub authorization_mode: Option<String>,
    /// `--authorization-webhook-config-file`: kubeconfig of the webhook that authorizes requests.
    pub authorization_webhook_config_file: Option<String>,
    /// `--authorization-webhook-cache-authorized-ttl`: how long an approval by the webhook is cached.
    #[serde(rename = "authorizationWebhookCacheAuthorizedTTL")]
    pub authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// `--authorization-webhook-cache-unauthorized-ttl`: how long a denial by the webhook is cached.
    #[serde(rename = "authorizationWebhookCacheUnauthorizedTTL")]
    pub authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
    /// `--authorization-rbac-super-user`: user for whom RBAC allows every request. Kubernetes has removed the flag.
    #[serde(rename = "authorizationRBACSuperUser")]
    pub authorization_rbac_super_user: Option<String>,
    /// `--encryption-provider-config`: file that configures encryption in etcd.
    pub encryption_provider_config: Option<String>,
    /// `--experimental-encryption-provider-config`: old name of `--encryption-provider-config`.
    pub experimental_encryption_provider_config: Option<String>,
    /// `--requestheader-username-headers`: headers with the user's name, from an authenticating proxy.
    pub requestheader_username_headers: Vec<String>,
    /// `--requestheader-group-headers`: headers with the user's groups, from an authenticating proxy.
    pub requestheader_group_headers: Vec<String>,
    /// `--requestheader-extra-headers-prefix`: prefixes of the headers with additional information about the user, from an authenticating
    /// proxy.
    pub requestheader_extra_header_prefixes: Vec<String>,
    /// `--requestheader-client-ca-file`: file of CA certificates that verify the certificates of authenticating proxies.
    #[serde(rename = "requestheaderClientCAFile")]
    pub requestheader_client_ca_file: String,
    /// `--requestheader-allowed-names`: allowed common names of authenticating proxies.
    pub requestheader_allowed_names: Vec<String>,
    pub feature_gates: BTreeMap<String, String>,
    /// `--goaway-chance`: probability that the server tells an HTTP/2 client to reconnect.
    pub goaway_chance: String,
    /// `--max-requests-inflight` (left out when `0`): maximum number of concurrent read requests.
    pub max_requests_inflight: i32,
    /// `--max-mutating-requests-inflight` (left out when `0`): maximum number of concurrent write requests.
    pub max_mutating_requests_inflight: i32,
    pub http2_max_streams_per_connection: Option<i32>,
    pub etcd_quorum_read: Option<bool>,
    pub request_timeout: Option<Duration>,
    /// `--storage-initialization-timeout`: maximum time to wait for etcd when the API server starts.
    pub storage_initialization_timeout: Option<Duration>,
    /// `--min-request-timeout`: minimum timeout of a watch, in seconds.
    pub min_request_timeout: Option<i32>,
    /// `--watch-cache`: serve watches from a cache.
    pub watch_cache: Option<bool>,
    /// `--watch-cache-sizes` (left out when `0`): sizes of the watch cache for some resources, as in
    /// `pods#1000`.
    pub watch_cache_sizes: Vec<String>,
    /// `--service-account-key-file` (repeated): files of keys that verify service account tokens.
    pub service_account_key_file: Vec<String>,
    /// `--service-account-signing-key-file`: file of the key that signs service account tokens.
    pub service_account_signing_key_file: Option<String>,
    pub service_account_issuer: Option<String>,
    /// Additional issuers whose tokens the API server accepts.
    pub additional_service_account_issuers: Vec<String>,
    /// `--service-account-jwks-uri`: URL that publishes the keys that verify service account tokens.
    #[serde(rename = "serviceAccountJWKSURI")]
    pub service_account_jwks_uri: Option<String>,
    /// `--api-audiences`: audiences that tokens may be issued for.
    pub api_audiences: Vec<String>,
    pub cpu_request: Option<Quantity>,
    pub cpu_limit: Option<Quantity>,
    pub memory_request: Option<Quantity>,
    pub memory_limit: Option<Quantity>,
    /// `--event-ttl`: how long etcd keeps Events.
    #[serde(rename = "eventTTL")]
    pub event_ttl: Option<Duration>,
    /// `--audit-dynamic-configuration`: read the audit configuration from the API. Kubernetes has removed the flag.
    pub audit_dynamic_configuration: Option<bool>,
    /// `--profiling`: serve profiling data.
    pub enable_profiling: Option<bool>,
    /// `--contention-profiling`: collect profiles of lock contention.
    pub enable_contention_profiling: Option<bool>,
    /// `--cors-allowed-origins`: origins of web pages whose scripts may send requests.
    pub cors_allowed_origins: Vec<String>,
    /// `--strict-transport-security-directives`: directives of the HSTS header.
    pub strict_transport_security_directives: Vec<String>,
    /// `--default-not-ready-toleration-seconds`: seconds that pods tolerate a node that is not ready.
    pub default_not_ready_toleration_seconds: Option<i64>,
    /// `--default-unreachable-toleration-seconds`: seconds that pods tolerate an unreachable node.
    pub default_unreachable_toleration_seconds: Option<i64>,
    /// `--delete-collection-workers` (left out when `0`): number of workers for a request that deletes a
    /// collection.
    pub delete_collection_workers: i64,
    pub env: Vec<ContainerEnvVar>,
}

/// An environment variable of a container (`corev1.EnvVar`).
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerEnvVar {
    #[serde_with(skip_apply)]
    pub name: String,
    pub value: String,
    /// The source of the value (`corev1.EnvVarSource`).
    pub value_from: Option<serde_json::Value>,
}
