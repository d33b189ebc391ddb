//! The API server's command line: the flags from the fields of `KubeAPIServerConfig`, and flags with the
//! paths of the API server's files.
//!
//! Source: the `flag` tags of `KubeAPIServerConfig` in pkg/apis/kops/componentconfig.go, and
//! nodeup/pkg/model/kube_apiserver.go.

use crate::desired::flags::Flags;
use crate::desired::paths;
use crate::resolve::{KubeApiServer, NodeConfig, TokenWebhook};
use kops_agent_spec::{KubeAPIServerConfig, OIDCAuthenticationSpec};

use super::{authentication, encryption_file, file};

/// The flags, in the order of the command line.
pub(super) fn flags(node: &NodeConfig, api_server: &KubeApiServer) -> Vec<String> {
    let config = &api_server.config;
    let mut flags = Flags::default();
    add_serving_flags(&mut flags, node, config);
    add_etcd_flags(&mut flags, node, config);
    add_kubelet_flags(&mut flags, node, config);
    add_authentication_flags(&mut flags, node, api_server);
    add_aggregation_flags(&mut flags, node, config);
    add_service_account_flags(&mut flags, node, config);
    add_authorization_flags(&mut flags, config);
    add_admission_flags(&mut flags, config);
    add_audit_flags(&mut flags, config);
    add_load_flags(&mut flags, config);
    flags.set("allow-privileged", &config.allow_privileged);
    flags.set("apiserver-count", &config.api_server_count);
    if node.uses_in_tree_cloud_config() {
        flags.set("cloud-config", paths::IN_TREE_CLOUD_CONFIG);
    }
    flags.set("cloud-provider", &config.cloud_provider);
    flags.set("event-ttl", &config.event_ttl);
    flags.set("feature-gates", &config.feature_gates);
    flags.set_unless("logging-format", &config.log_format, "text");
    flags.set("runtime-config", &config.runtime_config);
    flags.set("service-cluster-ip-range", &config.service_cluster_ip_range);
    flags.set("service-node-port-range", &config.service_node_port_range);
    flags.set_unless("v", &config.log_level, "0");

    // The API server issues tokens in the name of the first issuer, so the additional issuers come last.
    let more_issuers = &config.additional_service_account_issuers;
    let mut flags = flags.into_sorted();
    flags.extend(more_issuers.iter().map(|issuer| format!("--service-account-issuer={issuer}")));
    flags
}

fn add_serving_flags(flags: &mut Flags, node: &NodeConfig, config: &KubeAPIServerConfig) {
    flags.set("address", &config.address);
    flags.set("advertise-address", &config.advertise_address);
    flags.set("bind-address", &config.bind_address);
    flags.set("contention-profiling", &config.enable_contention_profiling);
    flags.set("cors-allowed-origins", &config.cors_allowed_origins);
    flags.set("insecure-bind-address", &config.insecure_bind_address);
    flags.set("insecure-port", &config.insecure_port);
    flags.set("profiling", &config.enable_profiling);
    flags.set("secure-port", &config.secure_port);
    flags.set("strict-transport-security-directives", &config.strict_transport_security_directives);
    flags.set("tls-cert-file", &file(node, "server.crt"));
    flags.set("tls-cipher-suites", &config.tls_cipher_suites);
    flags.set("tls-min-version", &config.tls_min_version);
    flags.set("tls-private-key-file", &file(node, "server.key"));
}

fn add_etcd_flags(flags: &mut Flags, node: &NodeConfig, config: &KubeAPIServerConfig) {
    flags.set("etcd-cafile", &file(node, "etcd-ca.crt"));
    flags.set("etcd-certfile", &file(node, "etcd-client.crt"));
    flags.set("etcd-compaction-interval", &config.compaction_interval);
    flags.set("etcd-keyfile", &file(node, "etcd-client.key"));
    flags.set("etcd-quorum-read", &config.etcd_quorum_read);
    flags.set("etcd-servers", &config.etcd_servers);
    flags.set("etcd-servers-overrides", &config.etcd_servers_overrides);
    flags.set("storage-backend", &config.storage_backend);
    flags.set("storage-initialization-timeout", &config.storage_initialization_timeout);
    flags.set("watch-cache", &config.watch_cache);
    flags.set("watch-cache-sizes", &config.watch_cache_sizes);
}

fn add_kubelet_flags(flags: &mut Flags, node: &NodeConfig, config: &KubeAPIServerConfig) {
    flags.set("kubelet-certificate-authority", &config.kubelet_certificate_authority);
    flags.set("kubelet-client-certificate", &file(node, "kubelet-api.crt"));
    flags.set("kubelet-client-key", &file(node, "kubelet-api.key"));
    flags.set("kubelet-preferred-address-types", &config.kubelet_preferred_address_types);
}

fn add_authentication_flags(flags: &mut Flags, node: &NodeConfig, api_server: &KubeApiServer) {
    let config = &api_server.config;
    flags.set("anonymous-auth", &config.anonymous_auth);
    flags.set("authentication-config", &config.authentication_config_file);
    flags.set("authentication-token-webhook-cache-ttl", &config.authentication_token_webhook_cache_ttl);
    // For Kopeio's webhook, kOps itself sets the field for the webhook's file.
    match api_server.token_webhook {
        Some(TokenWebhook::AwsIamAuthenticator) => {
            flags.set("authentication-token-webhook-config-file", authentication::CONFIG_FILE);
        }
        _ => flags.set(
            "authentication-token-webhook-config-file",
            &config.authentication_token_webhook_config_file,
        ),
    }
    flags.set("basic-auth-file", &config.basic_auth_file);
    match config.client_ca_file.as_str() {
        "" => flags.set("client-ca-file", &paths::kubernetes_ca(node.distribution)),
        client_ca_file => flags.set("client-ca-file", client_ca_file),
    }
    flags.set("enable-bootstrap-token-auth", &config.enable_bootstrap_token_auth);
    match api_server.encrypts {
        true => flags.set("encryption-provider-config", &encryption_file(node)),
        false => flags.set("encryption-provider-config", &config.encryption_provider_config),
    }
    flags.set("experimental-encryption-provider-config", &config.experimental_encryption_provider_config);
    flags.set("oidc-ca-file", &config.oidc_ca_file);
    if let Some(oidc) = &api_server.oidc {
        add_oidc_flags(flags, oidc);
    }
    flags.set("token-auth-file", &config.token_auth_file);
}

fn add_oidc_flags(flags: &mut Flags, oidc: &OIDCAuthenticationSpec) {
    flags.set("oidc-client-id", &oidc.client_id);
    flags.set("oidc-groups-claim", &oidc.groups_claims);
    flags.set("oidc-groups-prefix", &oidc.groups_prefix);
    flags.set("oidc-issuer-url", &oidc.issuer_url);
    let required: Vec<String> =
        oidc.required_claims.iter().map(|(claim, value)| format!("{claim}={value}")).collect();
    flags.repeat("oidc-required-claim", &required);
    flags.set("oidc-username-claim", &oidc.username_claim);
    flags.set("oidc-username-prefix", &oidc.username_prefix);
}

fn add_aggregation_flags(flags: &mut Flags, node: &NodeConfig, config: &KubeAPIServerConfig) {
    flags.set("enable-aggregator-routing", &config.enable_aggregator_routing);
    flags.set("proxy-client-cert-file", &file(node, "apiserver-aggregator.crt"));
    flags.set("proxy-client-key-file", &file(node, "apiserver-aggregator.key"));
    flags.set("requestheader-allowed-names", &config.requestheader_allowed_names);
    flags.set("requestheader-client-ca-file", &file(node, "apiserver-aggregator-ca.crt"));
    flags.set("requestheader-extra-headers-prefix", &config.requestheader_extra_header_prefixes);
    flags.set("requestheader-group-headers", &config.requestheader_group_headers);
    flags.set("requestheader-username-headers", &config.requestheader_username_headers);
}

fn add_service_account_flags(flags: &mut Flags, node: &NodeConfig, config: &KubeAPIServerConfig) {
    flags.set("api-audiences", &config.api_audiences);
    flags.set("service-account-issuer", &config.service_account_issuer);
    flags.set("service-account-jwks-uri", &config.service_account_jwks_uri);
    flags.repeat("service-account-key-file", &config.service_account_key_file);
    flags.set("service-account-key-file", &file(node, "service-account.pub"));
    match &config.service_account_signing_key_file {
        Some(key_file) => flags.set("service-account-signing-key-file", key_file),
        None => flags.set("service-account-signing-key-file", &file(node, "service-account.key")),
    }
}

fn add_authorization_flags(flags: &mut Flags, config: &KubeAPIServerConfig) {
    flags.set("authorization-mode", &config.authorization_mode);
    flags.set("authorization-rbac-super-user", &config.authorization_rbac_super_user);
    flags.set(
        "authorization-webhook-cache-authorized-ttl",
        &config.authorization_webhook_cache_authorized_ttl,
    );
    flags.set(
        "authorization-webhook-cache-unauthorized-ttl",
        &config.authorization_webhook_cache_unauthorized_ttl,
    );
    flags.set("authorization-webhook-config-file", &config.authorization_webhook_config_file);
}

fn add_admission_flags(flags: &mut Flags, config: &KubeAPIServerConfig) {
    flags.set("admission-control", &config.admission_control);
    flags.set("admission-control-config-file", &config.admission_control_config_file);
    flags.set("default-not-ready-toleration-seconds", &config.default_not_ready_toleration_seconds);
    flags.set("default-unreachable-toleration-seconds", &config.default_unreachable_toleration_seconds);
    flags.set("disable-admission-plugins", &config.disable_admission_plugins);
    flags.set("enable-admission-plugins", &config.enable_admission_plugins);
}

fn add_audit_flags(flags: &mut Flags, config: &KubeAPIServerConfig) {
    flags.set("audit-dynamic-configuration", &config.audit_dynamic_configuration);
    flags.set("audit-log-format", &config.audit_log_format);
    flags.set("audit-log-maxage", &config.audit_log_max_age);
    flags.set("audit-log-maxbackup", &config.audit_log_max_backups);
    flags.set("audit-log-maxsize", &config.audit_log_max_size);
    flags.set("audit-log-path", &config.audit_log_path);
    flags.set("audit-policy-file", &config.audit_policy_file);
    flags.set("audit-webhook-batch-buffer-size", &config.audit_webhook_batch_buffer_size);
    flags.set("audit-webhook-batch-max-size", &config.audit_webhook_batch_max_size);
    flags.set("audit-webhook-batch-max-wait", &config.audit_webhook_batch_max_wait);
    flags.set("audit-webhook-batch-throttle-burst", &config.audit_webhook_batch_throttle_burst);
    flags.set("audit-webhook-batch-throttle-enable", &config.audit_webhook_batch_throttle_enable);
    flags.set("audit-webhook-batch-throttle-qps", &config.audit_webhook_batch_throttle_qps);
    flags.set("audit-webhook-config-file", &config.audit_webhook_config_file);
    flags.set("audit-webhook-initial-backoff", &config.audit_webhook_initial_backoff);
    flags.set("audit-webhook-mode", &config.audit_webhook_mode);
}

fn add_load_flags(flags: &mut Flags, config: &KubeAPIServerConfig) {
    flags.set_unless("delete-collection-workers", &config.delete_collection_workers, "0");
    flags.set("goaway-chance", &config.goaway_chance);
    flags.set("http2-max-streams-per-connection", &config.http2_max_streams_per_connection);
    flags.set_unless("max-mutating-requests-inflight", &config.max_mutating_requests_inflight, "0");
    flags.set_unless("max-requests-inflight", &config.max_requests_inflight, "0");
    flags.set("min-request-timeout", &config.min_request_timeout);
    flags.set("request-timeout", &config.request_timeout);
}

#[cfg(test)]
mod tests;
