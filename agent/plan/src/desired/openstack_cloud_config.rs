//! The cloud configuration for OpenStack: the login, and settings for load balancers, volumes and networks.
//! kOps puts the login into kops-agent's environment.
//!
//! Source: upup/pkg/fi/cloudup/openstack/openstackcloudconfig/config.go.

use crate::resolve::NodeConfig;
use crate::resource::{Content, SecretPiece};
use kops_agent_spec::{
    OpenstackBlockStorageConfig, OpenstackLoadbalancerConfig, OpenstackMonitor, OpenstackNetwork,
    OpenstackSpec,
};

/// Every kind of login to OpenStack sets this variable. If the variable is set, kOps passes on all variables of the
/// login (`buildEnvironmentVariables` in pkg/model/resources/nodeup.go).
pub const LOGIN_VARIABLE: &str = "OS_AUTH_URL";

/// Each setting of `[global]`, and the environment variables for it. Some settings have two names in
/// Keystone: tenant and project.
const LOGIN: [(&str, &[&str]); 10] = [
    ("auth-url", &[LOGIN_VARIABLE]),
    ("username", &["OS_USERNAME"]),
    ("password", &["OS_PASSWORD"]),
    ("region", &["OS_REGION_NAME"]),
    ("tenant-id", &["OS_TENANT_ID", "OS_PROJECT_ID"]),
    ("tenant-name", &["OS_TENANT_NAME", "OS_PROJECT_NAME"]),
    ("domain-name", &["OS_DOMAIN_NAME"]),
    ("domain-id", &["OS_DOMAIN_ID"]),
    ("application-credential-id", &["OS_APPLICATION_CREDENTIAL_ID"]),
    ("application-credential-secret", &["OS_APPLICATION_CREDENTIAL_SECRET"]),
];

pub(super) fn content(node: &NodeConfig) -> Content {
    let mut pieces = vec![SecretPiece::Text("[global]\n".into())];
    for (name, variables) in LOGIN {
        pieces.push(SecretPiece::Text(format!("{name}=\"")));
        pieces.push(SecretPiece::Environment(variables.iter().map(|name| (*name).to_owned()).collect()));
        pieces.push(SecretPiece::Text("\"\n".into()));
    }
    let settings = node.config.openstack.as_ref().map(sections).unwrap_or_default();
    pieces.push(SecretPiece::Text(settings));
    Content::SecretText(pieces)
}

fn sections(openstack: &OpenstackSpec) -> String {
    let mut text = String::new();
    if let Some(load_balancer) = &openstack.loadbalancer {
        add_section(
            &mut text,
            "LoadBalancer",
            load_balancer_lines(load_balancer, openstack.monitor.as_ref()),
        );
    }
    if let Some(storage) = &openstack.block_storage {
        add_section(&mut text, "BlockStorage", block_storage_lines(storage));
    }
    if let Some(network) = &openstack.network {
        add_section(&mut text, "Networking", network_lines(network));
    }
    text
}

fn add_section(text: &mut String, name: &str, lines: Vec<String>) {
    if !lines.is_empty() {
        text.push_str(&format!("\n[{name}]\n{}\n", lines.join("\n")));
    }
}

fn load_balancer_lines(
    config: &OpenstackLoadbalancerConfig,
    monitor: Option<&OpenstackMonitor>,
) -> Vec<String> {
    let suffix = config.ingress_hostname_suffix.as_deref().filter(|suffix| !suffix.is_empty());
    let mut lines = vec![
        format!("floating-network-id={}", text(&config.floating_network_id)),
        format!("lb-method={}", text(&config.method)),
        format!("lb-provider={}", text(&config.provider)),
        format!("use-octavia={}", config.use_octavia.unwrap_or_default()),
        format!("manage-security-groups={}", config.manage_security_groups.unwrap_or_default()),
        format!("enable-ingress-hostname={}", config.enable_ingress_hostname.unwrap_or_default()),
        format!("ingress-hostname-suffix={}", suffix.unwrap_or("nip.io")),
    ];
    if let Some(monitor) = monitor {
        lines.extend([
            "create-monitor=yes".into(),
            format!("monitor-delay={}", text(&monitor.delay)),
            format!("monitor-timeout={}", text(&monitor.timeout)),
            format!("monitor-max-retries={}", monitor.max_retries.unwrap_or_default()),
        ]);
    }
    lines
}

fn block_storage_lines(config: &OpenstackBlockStorageConfig) -> Vec<String> {
    vec![
        format!("bs-version={}", text(&config.bs_version)),
        format!("ignore-volume-az={}", config.ignore_volume_az.unwrap_or_default()),
        format!("ignore-volume-microversion={}", config.ignore_volume_microversion.unwrap_or_default()),
    ]
}

fn network_lines(config: &OpenstackNetwork) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(config.ipv6_support_disabled.map(|disabled| format!("ipv6-support-disabled={disabled}")));
    lines.extend(config.public_network_names.iter().map(|name| format!("public-network-name={name}")));
    lines.extend(config.internal_network_names.iter().map(|name| format!("internal-network-name={name}")));
    lines.extend(config.address_sort_order.as_ref().map(|order| format!("address-sort-order={order}")));
    lines
}

fn text(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_configured_sections_are_written() {
        assert_eq!(sections(&OpenstackSpec::default()), "");
        let spec = OpenstackSpec {
            block_storage: Some(OpenstackBlockStorageConfig {
                bs_version: Some("v3".into()),
                ..OpenstackBlockStorageConfig::default()
            }),
            network: Some(OpenstackNetwork::default()),
            ..OpenstackSpec::default()
        };
        assert_eq!(
            sections(&spec),
            "\n[BlockStorage]\nbs-version=v3\nignore-volume-az=false\nignore-volume-microversion=false\n"
        );
    }

    #[test]
    fn a_monitor_belongs_to_the_load_balancer() {
        let monitor = OpenstackMonitor { delay: Some("1m".into()), ..OpenstackMonitor::default() };
        let lines = load_balancer_lines(&OpenstackLoadbalancerConfig::default(), Some(&monitor));
        assert!(lines.contains(&"monitor-delay=1m".to_owned()));
        assert!(lines.contains(&"ingress-hostname-suffix=nip.io".to_owned()));
    }
}
