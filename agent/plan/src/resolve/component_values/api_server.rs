//! Checks values of the API server.

use std::net::IpAddr;

use kops_agent_spec::KubeAPIServerConfig;

use super::resources::Resources;
use super::{Component, admission_plugins, api_versions, audit, authentication, items, removed_flags, text};
use crate::resolve::KubeApiServer;

/// The types of addresses (`NodeAddressType` in k8s.io/api/core/v1).
const ADDRESS_TYPES: [&str; 5] = ["ExternalDNS", "ExternalIP", "Hostname", "InternalDNS", "InternalIP"];
/// The maximum number of host bits in the address range of Services. A range with 20 host bits has 2^20 addresses. If Kubernetes stores
/// each Service address in its own object, the range can be larger.
const MOST_SERVICE_BITS: u8 = 20;
/// The first minor version in which a range of Services with more than [`MOST_SERVICE_BITS`] host bits also needs the gate
/// `DisableAllocatorDualWrite`.
const FIRST_WITH_DUAL_WRITE: u64 = 31;
/// The newest minor version with in-tree cloud providers.
const LAST_WITH_CLOUDS: u64 = 30;
/// The highest value of `goawayChance` that the API server accepts.
const MOST_GOAWAY_CHANCE: f64 = 0.02;

pub(super) fn check(mut component: Component<'_>, api_server: &KubeApiServer) {
    let component = &mut component;
    let config = &api_server.config;
    removed_flags::check_api_server(component, config);
    component.logging(&config.log_format, config.log_level);
    component.tls(&config.tls_min_version, &config.tls_cipher_suites);
    check_cloud(component, config);
    check_addresses(component, config);
    check_services(component, config);
    check_etcd(component, config);
    authentication::check(component, api_server);
    admission_plugins::check(component, config);
    api_versions::check(component, &config.runtime_config);
    audit::check(component, config);
    check_load(component, config);
    check_headers(component, config);
    warn_of_negative(component, config);
    let resources = Resources {
        cpu_request: config.cpu_request.as_ref(),
        usual_cpu_request: "150m",
        cpu_limit: config.cpu_limit.as_ref(),
        memory_request: config.memory_request.as_ref(),
        memory_limit: config.memory_limit.as_ref(),
    };
    resources.check(component);
}

fn check_cloud(component: &mut Component<'_>, config: &KubeAPIServerConfig) {
    let gates = ["DisableCloudProviders", "DisableKubeletCloudCredentialProviders"];
    let minor = component.version.minor();
    let accepted: &[&str] = match gates.map(|gate| component.gates().is_on(gate)) {
        // `removed_flags` already warns about any value of this field.
        _ if minor > removed_flags::LAST_WITH_CLOUD_PROVIDER => return,
        [false, false] if minor <= LAST_WITH_CLOUDS => &["azure", "gce", "vsphere"],
        _ => &["external"],
    };
    component.word("cloudProvider", &config.cloud_provider, accepted);
}

fn check_addresses(component: &mut Component<'_>, config: &KubeAPIServerConfig) {
    component.numbers(1..=65535, &[("securePort", Some(config.secure_port.into()))]);
    for (field, address) in
        [("advertiseAddress", &config.advertise_address), ("bindAddress", &config.bind_address)]
    {
        if !address.is_empty() && address.trim().parse::<IpAddr>().is_err() {
            component.refuse_value(field, format!("{address:?}"), "use an IP address");
        }
    }
    for (index, kind) in items(&config.kubelet_preferred_address_types) {
        if !ADDRESS_TYPES.contains(&kind) {
            component.warn(
                &format!("kubeletPreferredAddressTypes[{index}]"),
                format!(
                    "{kind:?} is not a type of address, so kube-apiserver ignores it; use {}",
                    ADDRESS_TYPES.join(", ")
                ),
            );
        }
    }
}

fn check_services(component: &mut Component<'_>, config: &KubeAPIServerConfig) {
    component.numbers(1..=i64::MAX, &[("apiServerCount", config.api_server_count.map(i64::from))]);
    let ports = config.service_node_port_range.as_str();
    if !is_port_range(ports) {
        component.refuse_value(
            "serviceNodePortRange",
            format!("{ports:?}"),
            "use a range such as 30000-32767",
        );
    }
    const FIELD: &str = "serviceClusterIPRange";
    if config.service_cluster_ip_range.is_empty() {
        return;
    }
    let ranges = component.ranges(FIELD, &config.service_cluster_ip_range);
    let allows_large = component.gates().is_on("MultiCIDRServiceAllocator")
        && (component.version.minor() < FIRST_WITH_DUAL_WRITE
            || component.gates().is_on("DisableAllocatorDualWrite"));
    for range in ranges.iter().filter(|_| !allows_large) {
        let least = range.max_prefix_len() - MOST_SERVICE_BITS;
        if range.prefix_len() < least {
            component.refuse_value(FIELD, range, format!("use a prefix length of {least} or more"));
        }
    }
}

/// Whether a text is a range of ports (`FIRST-LAST`, `FIRST+COUNT`), one port, or empty. An empty text is an unset value.
fn is_port_range(text: &str) -> bool {
    const MOST: u32 = 65535;
    let text = text.trim();
    let port = |text: &str| text.parse::<u32>().ok().filter(|port| *port <= MOST);
    if let Some((first, last)) = text.split_once('-') {
        return port(first).is_some_and(|first| port(last).is_some_and(|last| first <= last));
    }
    if let Some((first, more)) = text.split_once('+') {
        return port(first).is_some_and(|first| port(more).is_some_and(|more| first + more <= MOST));
    }
    text.is_empty() || port(text).is_some()
}

fn check_etcd(component: &mut Component<'_>, config: &KubeAPIServerConfig) {
    component.word("storageBackend", config.storage_backend.as_deref().unwrap_or_default(), &["etcd3"]);
    for (index, rule) in config.etcd_servers_overrides.iter().enumerate() {
        let is_rule = rule.split_once('#').is_some_and(|(resource, servers)| {
            resource.split('/').count() == 2
                && !servers.contains('#')
                && servers.split(';').all(|server| !server.is_empty())
        });
        if !is_rule {
            let field = format!("etcdServersOverrides[{index}]");
            let advice = "write GROUP/RESOURCE#URL, such as /events#https://127.0.0.1:4002";
            component.refuse_value(&field, format!("{rule:?}"), advice);
        }
    }
    // If the cache is off, the API server does not read the cache sizes.
    let sizes = items(&config.watch_cache_sizes).filter(|_| config.watch_cache != Some(false));
    for (index, size) in sizes {
        let is_size = |(_, size): (&str, &str)| size.parse::<u32>().is_ok();
        if !size.split_once('#').is_some_and(is_size) {
            let field = format!("watchCacheSizes[{index}]");
            component.refuse_value(&field, format!("{size:?}"), "write RESOURCE#SIZE, such as pods#1000");
        }
    }
}

fn check_load(component: &mut Component<'_>, config: &KubeAPIServerConfig) {
    component.numbers(
        0..=i64::MAX,
        &[
            ("maxMutatingRequestsInflight", Some(config.max_mutating_requests_inflight.into())),
            ("maxRequestsInflight", Some(config.max_requests_inflight.into())),
            ("minRequestTimeout", config.min_request_timeout.map(i64::from)),
        ],
    );
    component.durations(&[
        ("requestTimeout", config.request_timeout),
        ("storageInitializationTimeout", config.storage_initialization_timeout),
    ]);
    let chance = config.goaway_chance.as_str();
    let is_chance = |chance: f64| (0.0..=MOST_GOAWAY_CHANCE).contains(&chance);
    if !chance.is_empty() && !chance.parse().is_ok_and(is_chance) {
        let advice = format!("use a number from 0 to {MOST_GOAWAY_CHANCE}");
        component.refuse_value("goawayChance", format!("{chance:?}"), advice);
    }
}

fn check_headers(component: &mut Component<'_>, config: &KubeAPIServerConfig) {
    for (index, directive) in items(&config.strict_transport_security_directives) {
        let is_age = |(name, age): (&str, &str)| name == "max-age" && !age.contains('=');
        let is_flag = matches!(directive, "includeSubDomains" | "preload");
        if !is_flag && !directive.split_once('=').is_some_and(is_age) {
            let field = format!("strictTransportSecurityDirectives[{index}]");
            let advice = "it accepts max-age=SECONDS, includeSubDomains, preload";
            component.refuse_value(&field, format!("{directive:?}"), advice);
        }
    }
    for (index, origin) in items(&config.cors_allowed_origins) {
        let has = |marks: [&str; 2]| marks.iter().any(|mark| origin.contains(mark));
        if !has(["^", "//"]) || !has(["$", ":"]) {
            let field = format!("corsAllowedOrigins[{index}]");
            let advice = "write a regular expression for all of the origin, such as ^https://example\\.com$";
            component.refuse_value(&field, format!("{origin:?}"), advice);
        }
    }
}

fn warn_of_negative(component: &mut Component<'_>, config: &KubeAPIServerConfig) {
    component.warn_of_negative(&[
        ("auditWebhookBatchMaxWait", text(config.audit_webhook_batch_max_wait)),
        ("auditWebhookInitialBackoff", text(config.audit_webhook_initial_backoff)),
        ("authenticationTokenWebhookCacheTtl", text(config.authentication_token_webhook_cache_ttl)),
        ("authorizationWebhookCacheAuthorizedTTL", text(config.authorization_webhook_cache_authorized_ttl)),
        (
            "authorizationWebhookCacheUnauthorizedTTL",
            text(config.authorization_webhook_cache_unauthorized_ttl),
        ),
        ("compactionInterval", text(config.compaction_interval)),
        ("deleteCollectionWorkers", text(Some(config.delete_collection_workers))),
        ("eventTTL", text(config.event_ttl)),
        ("http2MaxStreamsPerConnection", text(config.http2_max_streams_per_connection)),
    ]);
}

#[cfg(test)]
mod tests {
    use super::is_port_range;
    use crate::resolve::component_values::testing::{
        API_SERVER, assert_accepted, assert_refused, assert_warned,
    };

    #[test]
    fn values_that_the_api_server_rejects_are_refused() {
        assert_refused(
            "1.34.0",
            API_SERVER,
            &[
                ("logFormat: xml", "logFormat"),
                ("logLevel: -2", "logLevel"),
                ("tlsMinVersion: TLS12", "tlsMinVersion"),
                ("tlsCipherSuites: [TLS_AES_128_GCM_SHA256, AES128]", "tlsCipherSuites[1]"),
                ("securePort: 0", "securePort"),
                ("securePort: 70000", "securePort"),
                ("advertiseAddress: api.example.com", "advertiseAddress"),
                ("bindAddress: '*'", "bindAddress"),
                ("apiServerCount: 0", "apiServerCount"),
                ("serviceNodePortRange: 30000-", "serviceNodePortRange"),
                ("serviceNodePortRange: 32767-30000", "serviceNodePortRange"),
                ("serviceClusterIPRange: 100.64.0.1", "serviceClusterIPRange"),
                ("serviceClusterIPRange: '100.64.0.0/16,10.0.0.0/16'", "serviceClusterIPRange"),
                ("storageBackend: etcd2", "storageBackend"),
                (
                    "etcdServersOverrides: ['/events#https://a', 'events#https://a']",
                    "etcdServersOverrides[1]",
                ),
                ("etcdServersOverrides: ['/events#https://a;']", "etcdServersOverrides[0]"),
                ("watchCacheSizes: ['pods#100', 'nodes']", "watchCacheSizes[1]"),
                ("watchCacheSizes: ['pods#-1']", "watchCacheSizes[0]"),
                ("maxRequestsInflight: -1", "maxRequestsInflight"),
                ("maxMutatingRequestsInflight: -1", "maxMutatingRequestsInflight"),
                ("minRequestTimeout: -1", "minRequestTimeout"),
                ("requestTimeout: -1s", "requestTimeout"),
                ("storageInitializationTimeout: -1s", "storageInitializationTimeout"),
                ("goawayChance: '0.5'", "goawayChance"),
                ("goawayChance: '1%'", "goawayChance"),
                ("strictTransportSecurityDirectives: ['max-age: 1']", "strictTransportSecurityDirectives[0]"),
                ("corsAllowedOrigins: [example.com]", "corsAllowedOrigins[0]"),
            ],
        );
        assert_refused(
            "1.32.0",
            API_SERVER,
            &[
                ("serviceClusterIPRange: 10.0.0.0/8", "serviceClusterIPRange"),
                ("cloudProvider: aws", "cloudProvider"),
                ("cloudProvider: gce", "cloudProvider"),
            ],
        );
    }

    #[test]
    fn values_that_the_api_server_accepts_are_accepted() {
        assert_accepted(
            "1.34.0",
            API_SERVER,
            &[
                "{logFormat: json, logLevel: 4, tlsMinVersion: VersionTLS12, securePort: 6443, bindAddress: '::', apiServerCount: 3}",
                "{serviceNodePortRange: 28000-32767, serviceClusterIPRange: '100.64.0.0/13,fd00::/108', storageBackend: etcd3}",
                "{etcdServersOverrides: ['/events#https://a;https://b'], watchCacheSizes: ['pods#1000'], goawayChance: '0.001'}",
                "{strictTransportSecurityDirectives: [max-age=31536000, includeSubDomains], corsAllowedOrigins: ['^https://a$']}",
                "{kubeletPreferredAddressTypes: [InternalIP, Hostname], requestTimeout: 0s, eventTTL: 1h}",
                "{watchCache: false, watchCacheSizes: [pods]}",
            ],
        );
        assert_accepted(
            "1.30.0",
            API_SERVER,
            &[
                "{cloudProvider: gce, featureGates: {DisableCloudProviders: 'false', DisableKubeletCloudCredentialProviders: 'false'}}",
            ],
        );
        assert_accepted(
            "1.33.0",
            API_SERVER,
            &["{serviceClusterIPRange: 10.0.0.0/8, featureGates: {DisableAllocatorDualWrite: 'true'}}"],
        );
    }

    #[test]
    fn values_without_a_meaning_give_a_warning() {
        assert_warned(
            "1.34.0",
            API_SERVER,
            &[
                ("eventTTL: -1h", "eventTTL"),
                ("compactionInterval: -5m", "compactionInterval"),
                ("deleteCollectionWorkers: -1", "deleteCollectionWorkers"),
                ("kubeletPreferredAddressTypes: [InternalIp]", "kubeletPreferredAddressTypes[0]"),
            ],
        );
    }

    #[test]
    fn ports_are_read_in_each_of_their_forms() {
        for text in ["", "30000", "30000-32767", "30000+2767", " 80-80 ", "0-65535"] {
            assert!(is_port_range(text), "{text}");
        }
        for text in ["x", "30000-", "-1", "2-1", "1-2-3", "65536", "65535+1", "1+2-3", "30000:32767"] {
            assert!(!is_port_range(text), "{text}");
        }
    }
}
