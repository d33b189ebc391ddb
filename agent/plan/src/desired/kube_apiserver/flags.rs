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
    let KubeAPIServerConfig {
        log_format,
        log_level,
        cloud_provider,
        compaction_interval,
        secure_port,
        insecure_port,
        address,
        advertise_address,
        bind_address,
        insecure_bind_address,
        enable_bootstrap_token_auth,
        enable_aggregator_routing,
        admission_control,
        enable_admission_plugins,
        disable_admission_plugins,
        admission_control_config_file,
        service_cluster_ip_range,
        service_node_port_range,
        etcd_servers,
        etcd_servers_overrides,
        basic_auth_file,
        client_ca_file,
        tls_cipher_suites,
        tls_min_version,
        token_auth_file,
        allow_privileged,
        api_server_count,
        runtime_config,
        kubelet_certificate_authority,
        anonymous_auth,
        kubelet_preferred_address_types,
        storage_backend,
        oidc_ca_file,
        authentication_config_file,
        audit_log_format,
        audit_log_path,
        audit_log_max_age,
        audit_log_max_backups,
        audit_log_max_size,
        audit_policy_file,
        audit_webhook_batch_buffer_size,
        audit_webhook_batch_max_size,
        audit_webhook_batch_max_wait,
        audit_webhook_batch_throttle_burst,
        audit_webhook_batch_throttle_enable,
        audit_webhook_batch_throttle_qps,
        audit_webhook_config_file,
        audit_webhook_initial_backoff,
        audit_webhook_mode,
        authentication_token_webhook_config_file,
        authentication_token_webhook_cache_ttl,
        authorization_mode,
        authorization_webhook_config_file,
        authorization_webhook_cache_authorized_ttl,
        authorization_webhook_cache_unauthorized_ttl,
        authorization_rbac_super_user,
        encryption_provider_config,
        experimental_encryption_provider_config,
        requestheader_username_headers,
        requestheader_group_headers,
        requestheader_extra_header_prefixes,
        requestheader_allowed_names,
        feature_gates,
        goaway_chance,
        max_requests_inflight,
        max_mutating_requests_inflight,
        http2_max_streams_per_connection,
        etcd_quorum_read,
        request_timeout,
        storage_initialization_timeout,
        min_request_timeout,
        watch_cache,
        watch_cache_sizes,
        service_account_key_file,
        service_account_signing_key_file,
        service_account_issuer,
        additional_service_account_issuers,
        service_account_jwks_uri,
        api_audiences,
        event_ttl,
        audit_dynamic_configuration,
        enable_profiling,
        enable_contention_profiling,
        cors_allowed_origins,
        strict_transport_security_directives,
        default_not_ready_toleration_seconds,
        default_unreachable_toleration_seconds,
        delete_collection_workers,
        // These settings are fields of the pod's container, not flags.
        image: _,
        cpu_request: _,
        cpu_limit: _,
        memory_request: _,
        memory_limit: _,
        env: _,
        // kOps' own files replace these files.
        etcd_ca_file: _,
        etcd_cert_file: _,
        etcd_key_file: _,
        tls_cert_file: _,
        tls_private_key_file: _,
        kubelet_client_certificate: _,
        kubelet_client_key: _,
        proxy_client_cert_file: _,
        proxy_client_key_file: _,
        requestheader_client_ca_file: _,
        // `kops update cluster` has already added these plugins to `enable_admission_plugins`.
        append_admission_plugins: _,
        // kOps no longer reads this field.
        disable_basic_auth: _,
    } = &api_server.config;
    let mut flags = Flags::default();

    flags.set("address", address);
    flags.set("advertise-address", advertise_address);
    flags.set("bind-address", bind_address);
    flags.set("contention-profiling", enable_contention_profiling);
    flags.set("cors-allowed-origins", cors_allowed_origins);
    flags.set("insecure-bind-address", insecure_bind_address);
    flags.set("insecure-port", insecure_port);
    flags.set("profiling", enable_profiling);
    flags.set("secure-port", secure_port);
    flags.set("strict-transport-security-directives", strict_transport_security_directives);
    flags.set("tls-cert-file", &file(node, "server.crt"));
    flags.set("tls-cipher-suites", tls_cipher_suites);
    flags.set("tls-min-version", tls_min_version);
    flags.set("tls-private-key-file", &file(node, "server.key"));

    flags.set("etcd-cafile", &file(node, "etcd-ca.crt"));
    flags.set("etcd-certfile", &file(node, "etcd-client.crt"));
    flags.set("etcd-compaction-interval", compaction_interval);
    flags.set("etcd-keyfile", &file(node, "etcd-client.key"));
    flags.set("etcd-quorum-read", etcd_quorum_read);
    flags.set("etcd-servers", etcd_servers);
    flags.set("etcd-servers-overrides", etcd_servers_overrides);
    flags.set("storage-backend", storage_backend);
    flags.set("storage-initialization-timeout", storage_initialization_timeout);
    flags.set("watch-cache", watch_cache);
    flags.set("watch-cache-sizes", watch_cache_sizes);

    flags.set("kubelet-certificate-authority", kubelet_certificate_authority);
    flags.set("kubelet-client-certificate", &file(node, "kubelet-api.crt"));
    flags.set("kubelet-client-key", &file(node, "kubelet-api.key"));
    flags.set("kubelet-preferred-address-types", kubelet_preferred_address_types);

    flags.set("anonymous-auth", anonymous_auth);
    flags.set("authentication-config", authentication_config_file);
    flags.set("authentication-token-webhook-cache-ttl", authentication_token_webhook_cache_ttl);
    // For Kopeio's authentication webhook, kOps itself sets this field to the webhook's file.
    match api_server.token_webhook {
        Some(TokenWebhook::AwsIamAuthenticator) => {
            flags.set("authentication-token-webhook-config-file", authentication::CONFIG_FILE);
        }
        _ => flags.set("authentication-token-webhook-config-file", authentication_token_webhook_config_file),
    }
    flags.set("basic-auth-file", basic_auth_file);
    match client_ca_file.as_str() {
        "" => flags.set("client-ca-file", &paths::kubernetes_ca(node.distribution)),
        client_ca_file => flags.set("client-ca-file", client_ca_file),
    }
    flags.set("enable-bootstrap-token-auth", enable_bootstrap_token_auth);
    match api_server.encrypts {
        true => flags.set("encryption-provider-config", &encryption_file(node)),
        false => flags.set("encryption-provider-config", encryption_provider_config),
    }
    flags.set("experimental-encryption-provider-config", experimental_encryption_provider_config);
    flags.set("oidc-ca-file", oidc_ca_file);
    if let Some(oidc) = &api_server.oidc {
        add_oidc_flags(&mut flags, oidc);
    }
    flags.set("token-auth-file", token_auth_file);

    flags.set("enable-aggregator-routing", enable_aggregator_routing);
    flags.set("proxy-client-cert-file", &file(node, "apiserver-aggregator.crt"));
    flags.set("proxy-client-key-file", &file(node, "apiserver-aggregator.key"));
    flags.set("requestheader-allowed-names", requestheader_allowed_names);
    flags.set("requestheader-client-ca-file", &file(node, "apiserver-aggregator-ca.crt"));
    flags.set("requestheader-extra-headers-prefix", requestheader_extra_header_prefixes);
    flags.set("requestheader-group-headers", requestheader_group_headers);
    flags.set("requestheader-username-headers", requestheader_username_headers);

    flags.set("api-audiences", api_audiences);
    flags.set("service-account-issuer", service_account_issuer);
    flags.set("service-account-jwks-uri", service_account_jwks_uri);
    flags.repeat("service-account-key-file", service_account_key_file);
    flags.set("service-account-key-file", &file(node, "service-account.pub"));
    match service_account_signing_key_file {
        Some(key_file) => flags.set("service-account-signing-key-file", key_file),
        None => flags.set("service-account-signing-key-file", &file(node, "service-account.key")),
    }

    flags.set("authorization-mode", authorization_mode);
    flags.set("authorization-rbac-super-user", authorization_rbac_super_user);
    flags.set("authorization-webhook-cache-authorized-ttl", authorization_webhook_cache_authorized_ttl);
    flags.set("authorization-webhook-cache-unauthorized-ttl", authorization_webhook_cache_unauthorized_ttl);
    flags.set("authorization-webhook-config-file", authorization_webhook_config_file);

    flags.set("admission-control", admission_control);
    flags.set("admission-control-config-file", admission_control_config_file);
    flags.set("default-not-ready-toleration-seconds", default_not_ready_toleration_seconds);
    flags.set("default-unreachable-toleration-seconds", default_unreachable_toleration_seconds);
    flags.set("disable-admission-plugins", disable_admission_plugins);
    flags.set("enable-admission-plugins", enable_admission_plugins);

    flags.set("audit-dynamic-configuration", audit_dynamic_configuration);
    flags.set("audit-log-format", audit_log_format);
    flags.set("audit-log-maxage", audit_log_max_age);
    flags.set("audit-log-maxbackup", audit_log_max_backups);
    flags.set("audit-log-maxsize", audit_log_max_size);
    flags.set("audit-log-path", audit_log_path);
    flags.set("audit-policy-file", audit_policy_file);
    flags.set("audit-webhook-batch-buffer-size", audit_webhook_batch_buffer_size);
    flags.set("audit-webhook-batch-max-size", audit_webhook_batch_max_size);
    flags.set("audit-webhook-batch-max-wait", audit_webhook_batch_max_wait);
    flags.set("audit-webhook-batch-throttle-burst", audit_webhook_batch_throttle_burst);
    flags.set("audit-webhook-batch-throttle-enable", audit_webhook_batch_throttle_enable);
    flags.set("audit-webhook-batch-throttle-qps", audit_webhook_batch_throttle_qps);
    flags.set("audit-webhook-config-file", audit_webhook_config_file);
    flags.set("audit-webhook-initial-backoff", audit_webhook_initial_backoff);
    flags.set("audit-webhook-mode", audit_webhook_mode);

    flags.set_unless("delete-collection-workers", delete_collection_workers, "0");
    flags.set("goaway-chance", goaway_chance);
    flags.set("http2-max-streams-per-connection", http2_max_streams_per_connection);
    flags.set_unless("max-mutating-requests-inflight", max_mutating_requests_inflight, "0");
    flags.set_unless("max-requests-inflight", max_requests_inflight, "0");
    flags.set("min-request-timeout", min_request_timeout);
    flags.set("request-timeout", request_timeout);

    flags.set("allow-privileged", allow_privileged);
    flags.set("apiserver-count", api_server_count);
    if node.uses_in_tree_cloud_config() {
        flags.set("cloud-config", paths::IN_TREE_CLOUD_CONFIG);
    }
    flags.set("cloud-provider", cloud_provider);
    flags.set("event-ttl", event_ttl);
    flags.set("feature-gates", feature_gates);
    flags.set_unless("logging-format", log_format, "text");
    flags.set("runtime-config", runtime_config);
    flags.set("service-cluster-ip-range", service_cluster_ip_range);
    flags.set("service-node-port-range", service_node_port_range);
    flags.set_unless("v", log_level, "0");

    // The API server issues tokens in the name of the first issuer, so the additional issuers come last.
    let mut flags = flags.into_sorted();
    flags.extend(
        additional_service_account_issuers.iter().map(|issuer| format!("--service-account-issuer={issuer}")),
    );
    flags
}

fn add_oidc_flags(flags: &mut Flags, oidc: &OIDCAuthenticationSpec) {
    let OIDCAuthenticationSpec {
        username_claim,
        username_prefix,
        groups_claims,
        groups_prefix,
        issuer_url,
        client_id,
        required_claims,
    } = oidc;
    flags.set("oidc-client-id", client_id);
    flags.set("oidc-groups-claim", groups_claims);
    flags.set("oidc-groups-prefix", groups_prefix);
    flags.set("oidc-issuer-url", issuer_url);
    let required: Vec<String> =
        required_claims.iter().map(|(claim, value)| format!("{claim}={value}")).collect();
    flags.repeat("oidc-required-claim", &required);
    flags.set("oidc-username-claim", username_claim);
    flags.set("oidc-username-prefix", username_prefix);
}

#[cfg(test)]
mod tests;
