//! The flags on kubelet's command line: settings that have no field in the configuration file, and settings
//! that kOps has never moved to the file.

use crate::desired::flags::Flags;
use crate::desired::paths;
use crate::resolve::NodeConfig;

/// kubelet's flags since kOps 1.36.
pub(super) fn flags(node: &NodeConfig) -> Flags {
    let config = &node.kubelet.config;
    let mut flags = of_every_release(node);
    flags.set("image-minimum-gc-age", &config.image_minimum_gc_age);
    flags.set("kube-api-qps", &config.kube_api_qps);
    flags.set("runtime-request-timeout", &config.runtime_request_timeout);
    flags
}

/// The settings that every kOps release passes as flags.
pub(super) fn of_every_release(node: &NodeConfig) -> Flags {
    let config = &node.kubelet.config;
    let mut flags = Flags::default();
    flags.set("allow-privileged", &config.allow_privileged);
    flags.set("api-servers", &config.api_servers);
    flags.set("authentication-token-webhook-cache-ttl", &config.authentication_token_webhook_cache_ttl);
    flags.set("babysit-daemons", &config.babysit_daemons);
    flags.set("bootstrap-kubeconfig", &config.bootstrap_kubeconfig);
    flags.set("cloud-provider", &config.cloud_provider);
    flags.set("config", paths::KUBELET_CONFIG);
    flags.set("configure-cbr0", &config.configure_cbr0);
    flags.set("enable-cadvisor-json-endpoints", &config.enable_cadvisor_json_endpoints);
    flags.set("enable-custom-metrics", &config.enable_custom_metrics);
    flags.set("event-burst", &config.event_burst);
    flags.set("experimental-allocatable-ignore-eviction", &config.experimental_allocatable_ignore_eviction);
    flags.set("experimental-allowed-unsafe-sysctls", &config.experimental_allowed_unsafe_sysctls);
    flags.set_unless("experimental-nvidia-gpus", &config.nvidia_gpus, "0");
    flags.set("hostname-override", &config.hostname_override);
    flags.set("housekeeping-interval", &config.housekeeping_interval);
    flags.set("image-pull-progress-deadline", &config.image_pull_progress_deadline);
    flags.set("kubeconfig", &config.kubeconfig_path);
    flags.set("network-plugin", &config.network_plugin_name);
    flags.set("network-plugin-mtu", &config.network_plugin_mtu);
    flags.repeat("node-ip", &node.kubelet.node_ips);
    flags.set("node-labels", &config.node_labels);
    flags.set("non-masquerade-cidr", &config.non_masquerade_cidr);
    flags.set("reconcile-cidr", &config.reconcile_cidr);
    flags.set("register-node", &config.register_node);
    flags.set("register-schedulable", &config.register_schedulable);
    flags.set("registry-burst", &config.registry_burst);
    flags.set("require-kubeconfig", &config.require_kubeconfig);
    flags.set("root-dir", &config.root_dir);
    flags.set("runtime-cgroups", &config.runtime_cgroups);
    flags.set("seccomp-profile-root", &config.seccomp_profile_root);
    flags.set("streaming-connection-idle-timeout", &config.streaming_connection_idle_timeout);
    flags.set_unless("v", &config.log_level, "0");
    flags.set("volume-stats-agg-period", &config.volume_stats_agg_period);
    if node.kubelet.credential_provider.is_some() {
        flags.set("image-credential-provider-config", paths::KUBELET_CREDENTIAL_PROVIDER_CONFIG);
        flags.set("image-credential-provider-bin-dir", node.distribution.kubelet_bin);
    }
    flags
}
