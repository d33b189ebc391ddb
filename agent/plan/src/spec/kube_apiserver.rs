//! What kOps wants of kube-apiserver.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::duration::Duration;
use super::omit::is_zero;
use super::scalars::Quantity;

/// `KubeAPIServerConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeAPIServerConfig {
    /// Image.
    #[serde(skip_serializing_if = "is_zero")]
    pub image: String,
    /// Disable basic auth.
    #[serde(skip_serializing_if = "is_zero")]
    pub disable_basic_auth: Option<bool>,
    /// `--logging-format`: Log format.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_format: String,
    /// `--v`: Log level.
    #[serde(skip_serializing_if = "is_zero")]
    pub log_level: i32,
    /// `--cloud-provider`: Cloud provider.
    #[serde(skip_serializing_if = "is_zero")]
    pub cloud_provider: String,
    /// `--etcd-compaction-interval`: Compaction interval.
    #[serde(skip_serializing_if = "is_zero")]
    pub compaction_interval: Option<Duration>,
    /// `--secure-port`: Secure port.
    #[serde(skip_serializing_if = "is_zero")]
    pub secure_port: i32,
    /// `--insecure-port`: Insecure port.
    #[serde(skip_serializing_if = "is_zero")]
    pub insecure_port: Option<i32>,
    /// `--address`: Address.
    #[serde(skip_serializing_if = "is_zero")]
    pub address: String,
    /// `--advertise-address`: Advertise address.
    #[serde(skip_serializing_if = "is_zero")]
    pub advertise_address: String,
    /// `--bind-address`: Bind address.
    #[serde(skip_serializing_if = "is_zero")]
    pub bind_address: String,
    /// `--insecure-bind-address`: Insecure bind address.
    #[serde(skip_serializing_if = "is_zero")]
    pub insecure_bind_address: String,
    /// `--enable-bootstrap-token-auth`: Enable bootstrap token auth.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_bootstrap_token_auth: Option<bool>,
    /// `--enable-aggregator-routing`: Enable aggregator routing.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_aggregator_routing: Option<bool>,
    /// `--admission-control`: Admission control.
    #[serde(skip_serializing_if = "is_zero")]
    pub admission_control: Vec<String>,
    /// Append admission plugins.
    #[serde(skip_serializing_if = "is_zero")]
    pub append_admission_plugins: Vec<String>,
    /// `--enable-admission-plugins`: Enable admission plugins.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_admission_plugins: Vec<String>,
    /// `--disable-admission-plugins`: Disable admission plugins.
    #[serde(skip_serializing_if = "is_zero")]
    pub disable_admission_plugins: Vec<String>,
    /// `--admission-control-config-file`: Admission control config file.
    #[serde(skip_serializing_if = "is_zero")]
    pub admission_control_config_file: String,
    /// `--service-cluster-ip-range`: Service cluster IP range.
    #[serde(rename = "serviceClusterIPRange", skip_serializing_if = "is_zero")]
    pub service_cluster_ip_range: String,
    /// `--service-node-port-range`: Service node port range.
    #[serde(skip_serializing_if = "is_zero")]
    pub service_node_port_range: String,
    /// `--etcd-servers`: Etcd servers.
    #[serde(skip_serializing_if = "is_zero")]
    pub etcd_servers: Vec<String>,
    /// `--etcd-servers-overrides`: Etcd servers overrides.
    #[serde(skip_serializing_if = "is_zero")]
    pub etcd_servers_overrides: Vec<String>,
    /// `--etcd-cafile`: Etcd CA file.
    #[serde(rename = "etcdCAFile", skip_serializing_if = "is_zero")]
    pub etcd_ca_file: String,
    /// `--etcd-certfile`: Etcd cert file.
    #[serde(skip_serializing_if = "is_zero")]
    pub etcd_cert_file: String,
    /// `--etcd-keyfile`: Etcd key file.
    #[serde(skip_serializing_if = "is_zero")]
    pub etcd_key_file: String,
    /// `--basic-auth-file`: Basic auth file.
    #[serde(skip_serializing_if = "is_zero")]
    pub basic_auth_file: String,
    /// `--client-ca-file`: Client CA file.
    #[serde(rename = "clientCAFile", skip_serializing_if = "is_zero")]
    pub client_ca_file: String,
    /// `--tls-cert-file`: Tls cert file.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_cert_file: String,
    /// `--tls-private-key-file`: Tls private key file.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_private_key_file: String,
    /// `--tls-cipher-suites`: Tls cipher suites.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_cipher_suites: Vec<String>,
    /// `--tls-min-version`: Tls min version.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_min_version: String,
    /// `--token-auth-file`: Token auth file.
    #[serde(skip_serializing_if = "is_zero")]
    pub token_auth_file: String,
    /// `--allow-privileged`: Allow privileged.
    #[serde(skip_serializing_if = "is_zero")]
    pub allow_privileged: Option<bool>,
    /// `--apiserver-count`: Api server count.
    #[serde(skip_serializing_if = "is_zero")]
    pub api_server_count: Option<i32>,
    /// `--runtime-config`: Runtime config.
    #[serde(skip_serializing_if = "is_zero")]
    pub runtime_config: BTreeMap<String, String>,
    /// `--kubelet-client-certificate`: Kubelet client certificate.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubelet_client_certificate: String,
    /// `--kubelet-certificate-authority`: Kubelet certificate authority.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubelet_certificate_authority: String,
    /// `--kubelet-client-key`: Kubelet client key.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubelet_client_key: String,
    /// `--anonymous-auth`: Anonymous auth.
    #[serde(skip_serializing_if = "is_zero")]
    pub anonymous_auth: Option<bool>,
    /// `--kubelet-preferred-address-types`: Kubelet preferred address types.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubelet_preferred_address_types: Vec<String>,
    /// `--storage-backend`: Storage backend.
    #[serde(skip_serializing_if = "is_zero")]
    pub storage_backend: Option<String>,
    /// `--oidc-ca-file`: Oidc CA file.
    #[serde(rename = "oidcCAFile", skip_serializing_if = "is_zero")]
    pub oidc_ca_file: Option<String>,
    /// `--authentication-config`: Authentication config file.
    #[serde(skip_serializing_if = "is_zero")]
    pub authentication_config_file: String,
    /// `--proxy-client-cert-file`: Proxy client cert file.
    #[serde(skip_serializing_if = "is_zero")]
    pub proxy_client_cert_file: Option<String>,
    /// `--proxy-client-key-file`: Proxy client key file.
    #[serde(skip_serializing_if = "is_zero")]
    pub proxy_client_key_file: Option<String>,
    /// `--audit-log-format`: Audit log format.
    #[serde(skip_serializing_if = "is_zero")]
    pub audit_log_format: Option<String>,
    /// `--audit-log-path`: Audit log path.
    #[serde(skip_serializing_if = "is_zero")]
    pub audit_log_path: Option<String>,
    /// `--audit-log-maxage`: Audit log max age.
    #[serde(skip_serializing_if = "is_zero")]
    pub audit_log_max_age: Option<i32>,
    /// `--audit-log-maxbackup`: Audit log max backups.
    #[serde(skip_serializing_if = "is_zero")]
    pub audit_log_max_backups: Option<i32>,
    /// `--audit-log-maxsize`: Audit log max size.
    #[serde(skip_serializing_if = "is_zero")]
    pub audit_log_max_size: Option<i32>,
    /// `--audit-policy-file`: Audit policy file.
    #[serde(skip_serializing_if = "is_zero")]
    pub audit_policy_file: String,
    /// `--audit-webhook-batch-buffer-size`: Audit webhook batch buffer size.
    #[serde(skip_serializing_if = "is_zero")]
    pub audit_webhook_batch_buffer_size: Option<i32>,
    /// `--audit-webhook-batch-max-size`: Audit webhook batch max size.
    #[serde(skip_serializing_if = "is_zero")]
    pub audit_webhook_batch_max_size: Option<i32>,
    /// `--audit-webhook-batch-max-wait`: Audit webhook batch max wait.
    #[serde(skip_serializing_if = "is_zero")]
    pub audit_webhook_batch_max_wait: Option<Duration>,
    /// `--audit-webhook-batch-throttle-burst`: Audit webhook batch throttle burst.
    #[serde(skip_serializing_if = "is_zero")]
    pub audit_webhook_batch_throttle_burst: Option<i32>,
    /// `--audit-webhook-batch-throttle-enable`: Audit webhook batch throttle enable.
    #[serde(skip_serializing_if = "is_zero")]
    pub audit_webhook_batch_throttle_enable: Option<bool>,
    /// `--audit-webhook-batch-throttle-qps`: Audit webhook batch throttle qps.
    #[serde(skip_serializing_if = "is_zero")]
    pub audit_webhook_batch_throttle_qps: Option<Quantity>,
    /// `--audit-webhook-config-file`: Audit webhook config file.
    #[serde(skip_serializing_if = "is_zero")]
    pub audit_webhook_config_file: String,
    /// `--audit-webhook-initial-backoff`: Audit webhook initial backoff.
    #[serde(skip_serializing_if = "is_zero")]
    pub audit_webhook_initial_backoff: Option<Duration>,
    /// `--audit-webhook-mode`: Audit webhook mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub audit_webhook_mode: String,
    /// `--authentication-token-webhook-config-file`: Authentication token webhook config file.
    #[serde(skip_serializing_if = "is_zero")]
    pub authentication_token_webhook_config_file: Option<String>,
    /// `--authentication-token-webhook-cache-ttl`: Authentication token webhook cache ttl.
    #[serde(skip_serializing_if = "is_zero")]
    pub authentication_token_webhook_cache_ttl: Option<Duration>,
    /// `--authorization-mode`: Authorization mode.
    #[serde(skip_serializing_if = "is_zero")]
    pub authorization_mode: Option<String>,
    /// `--authorization-webhook-config-file`: Authorization webhook config file.
    #[serde(skip_serializing_if = "is_zero")]
    pub authorization_webhook_config_file: Option<String>,
    /// `--authorization-webhook-cache-authorized-ttl`: Authorization webhook cache authorized TTL.
    #[serde(rename = "authorizationWebhookCacheAuthorizedTTL", skip_serializing_if = "is_zero")]
    pub authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// `--authorization-webhook-cache-unauthorized-ttl`: Authorization webhook cache unauthorized TTL.
    #[serde(rename = "authorizationWebhookCacheUnauthorizedTTL", skip_serializing_if = "is_zero")]
    pub authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
    /// `--authorization-rbac-super-user`: Authorization RBAC super user.
    #[serde(rename = "authorizationRBACSuperUser", skip_serializing_if = "is_zero")]
    pub authorization_rbac_super_user: Option<String>,
    /// `--encryption-provider-config`: Encryption provider config.
    #[serde(skip_serializing_if = "is_zero")]
    pub encryption_provider_config: Option<String>,
    /// `--experimental-encryption-provider-config`: Experimental encryption provider config.
    #[serde(skip_serializing_if = "is_zero")]
    pub experimental_encryption_provider_config: Option<String>,
    /// `--requestheader-username-headers`: Requestheader username headers.
    #[serde(skip_serializing_if = "is_zero")]
    pub requestheader_username_headers: Vec<String>,
    /// `--requestheader-group-headers`: Requestheader group headers.
    #[serde(skip_serializing_if = "is_zero")]
    pub requestheader_group_headers: Vec<String>,
    /// `--requestheader-extra-headers-prefix`: Requestheader extra header prefixes.
    #[serde(skip_serializing_if = "is_zero")]
    pub requestheader_extra_header_prefixes: Vec<String>,
    /// `--requestheader-client-ca-file`: Requestheader client CA file.
    #[serde(rename = "requestheaderClientCAFile", skip_serializing_if = "is_zero")]
    pub requestheader_client_ca_file: String,
    /// `--requestheader-allowed-names`: Requestheader allowed names.
    #[serde(skip_serializing_if = "is_zero")]
    pub requestheader_allowed_names: Vec<String>,
    /// `--feature-gates`: Feature gates.
    #[serde(skip_serializing_if = "is_zero")]
    pub feature_gates: BTreeMap<String, String>,
    /// `--goaway-chance`: Goaway chance.
    #[serde(skip_serializing_if = "is_zero")]
    pub goaway_chance: String,
    /// `--max-requests-inflight`: Max requests inflight.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_requests_inflight: i32,
    /// `--max-mutating-requests-inflight`: Max mutating requests inflight.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_mutating_requests_inflight: i32,
    /// `--http2-max-streams-per-connection`: Http2 max streams per connection.
    #[serde(skip_serializing_if = "is_zero")]
    pub http2_max_streams_per_connection: Option<i32>,
    /// `--etcd-quorum-read`: Etcd quorum read.
    #[serde(skip_serializing_if = "is_zero")]
    pub etcd_quorum_read: Option<bool>,
    /// `--request-timeout`: Request timeout.
    #[serde(skip_serializing_if = "is_zero")]
    pub request_timeout: Option<Duration>,
    /// `--storage-initialization-timeout`: Storage initialization timeout.
    #[serde(skip_serializing_if = "is_zero")]
    pub storage_initialization_timeout: Option<Duration>,
    /// `--min-request-timeout`: Min request timeout.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_request_timeout: Option<i32>,
    /// `--watch-cache`: Watch cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub watch_cache: Option<bool>,
    /// `--watch-cache-sizes`: Watch cache sizes.
    #[serde(skip_serializing_if = "is_zero")]
    pub watch_cache_sizes: Vec<String>,
    /// `--service-account-key-file` (repeated): Service account key file.
    #[serde(skip_serializing_if = "is_zero")]
    pub service_account_key_file: Vec<String>,
    /// `--service-account-signing-key-file`: Service account signing key file.
    #[serde(skip_serializing_if = "is_zero")]
    pub service_account_signing_key_file: Option<String>,
    /// `--service-account-issuer`: Service account issuer.
    #[serde(skip_serializing_if = "is_zero")]
    pub service_account_issuer: Option<String>,
    /// Additional service account issuers.
    #[serde(skip_serializing_if = "is_zero")]
    pub additional_service_account_issuers: Vec<String>,
    /// `--service-account-jwks-uri`: Service account JWKS URI.
    #[serde(rename = "serviceAccountJWKSURI", skip_serializing_if = "is_zero")]
    pub service_account_jwks_uri: Option<String>,
    /// `--api-audiences`: Api audiences.
    #[serde(skip_serializing_if = "is_zero")]
    pub api_audiences: Vec<String>,
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
    /// `--event-ttl`: Event TTL.
    #[serde(rename = "eventTTL", skip_serializing_if = "is_zero")]
    pub event_ttl: Option<Duration>,
    /// `--audit-dynamic-configuration`: Audit dynamic configuration.
    #[serde(skip_serializing_if = "is_zero")]
    pub audit_dynamic_configuration: Option<bool>,
    /// `--profiling`: Enable profiling.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_profiling: Option<bool>,
    /// `--contention-profiling`: Enable contention profiling.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_contention_profiling: Option<bool>,
    /// `--cors-allowed-origins`: Cors allowed origins.
    #[serde(skip_serializing_if = "is_zero")]
    pub cors_allowed_origins: Vec<String>,
    /// `--strict-transport-security-directives`: Strict transport security directives.
    #[serde(skip_serializing_if = "is_zero")]
    pub strict_transport_security_directives: Vec<String>,
    /// `--default-not-ready-toleration-seconds`: Default not ready toleration seconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub default_not_ready_toleration_seconds: Option<i64>,
    /// `--default-unreachable-toleration-seconds`: Default unreachable toleration seconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub default_unreachable_toleration_seconds: Option<i64>,
    /// `--delete-collection-workers`: Delete collection workers.
    #[serde(skip_serializing_if = "is_zero")]
    pub delete_collection_workers: i64,
    /// Env.
    #[serde(skip_serializing_if = "is_zero")]
    pub env: Vec<ContainerEnvVar>,
}

/// `ContainerEnvVar`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerEnvVar {
    /// Name.
    pub name: String,
    /// Value.
    #[serde(skip_serializing_if = "is_zero")]
    pub value: String,
    /// Value from.
    #[serde(skip_serializing_if = "is_zero")]
    pub value_from: Option<serde_json::Value>,
}
