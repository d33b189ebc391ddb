//! protokube: a service that spreads a gossip cluster's names on all of its nodes, and up to kOps 1.35 applies add-ons and labels the
//! control plane.
//!
//! Source: nodeup/pkg/model/protokube.go at v1.34.3, v1.35.2 and v1.36.2.

use crate::resolve::{NodeConfig, Project, Protokube};
use crate::resource::{Content, DesiredState, File, Mode, SecretPiece, Unit};
use kops_agent_spec::CloudProvider;

use super::flags::Flags;
use super::paths::KOPS_CHANNELS_KUBECONFIG;
use super::unit_file::{UnitFile, command_line};
use super::{certificates, openstack_cloud_config};

/// The name of protokube's unit.
pub const UNIT: &str = "protokube.service";
const PROGRAM: &str = "/opt/kops/bin/protokube";
const CHANNELS: &str = "/opt/kops/bin/channels";
const ENVIRONMENT: &str = "/etc/sysconfig/protokube";
/// The user of the API server that it is; also the name of its certificate.
const IDENTITY: &str = "kops";

/// Adds protokube where this node runs it.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let Some(protokube) = &node.protokube else { return };
    state.add(File::new(PROGRAM, protokube.program.content()).mode(Mode::EXECUTABLE));
    if let Some(channels) = &protokube.channels {
        state.add(File::new(CHANNELS, channels.content()).mode(Mode::EXECUTABLE));
    }
    let mut read_at_start = vec![PROGRAM.to_owned(), ENVIRONMENT.to_owned()];
    if protokube.channels.is_some() && node.is_control_plane() {
        let subject = certificates::user_in_group(IDENTITY, "system:masters");
        let kubeconfig = certificates::issued_kubeconfig(state, node, IDENTITY, subject);
        state.add(File::new(KOPS_CHANNELS_KUBECONFIG, kubeconfig).mode(Mode(0o400)));
        read_at_start.push(KOPS_CHANNELS_KUBECONFIG.to_owned());
    }
    // There may be credentials in it, and systemd reads it as root.
    state.add(File::new(ENVIRONMENT, Content::SecretText(environment(node, protokube))).mode(Mode::PRIVATE));
    let unit = UnitFile::default()
        .set("Unit", "Description", "Kubernetes Protokube Service")
        .set("Unit", "Documentation", "https://kops.sigs.k8s.io")
        .set("Service", "ExecStart", format!("{PROGRAM} {}", command_line(&flags(node, protokube))))
        .set("Service", "EnvironmentFile", ENVIRONMENT)
        .set("Service", "Restart", "always")
        .set("Service", "RestartSec", "3s")
        .set("Service", "StartLimitInterval", "0")
        .set("Install", "WantedBy", "multi-user.target");
    state.add(Unit::new(UNIT, unit.render()).restarted_by_files(read_at_start));
}

fn flags(node: &NodeConfig, protokube: &Protokube) -> Vec<String> {
    let config = &node.config;
    let mut flags = Flags::default();
    flags.set("cloud", node.cloud_provider().id());
    flags.set("containerized", &false);
    flags.set("v", &4);
    if node.uses_gossip() {
        flags.set("gossip", &true);
        if let Some(gossip) = &config.gossip_config {
            flags.set("gossip-protocol", &gossip.protocol);
            flags.set("gossip-listen", &gossip.listen);
            flags.set("gossip-secret", &gossip.secret);
            if let Some(secondary) = &gossip.secondary {
                flags.set_even_if_empty("gossip-protocol-secondary", secondary.protocol.as_deref());
                flags.set("gossip-listen-secondary", &secondary.listen);
                flags.set("gossip-secret-secondary", &secondary.secret);
            }
        }
    }
    if protokube.channels.is_some() {
        add_addon_flags(node, &mut flags);
    }
    flags.into_sorted()
}

/// What protokube is told where it applies add-ons, labels the control plane and once published names in DNS.
fn add_addon_flags(node: &NodeConfig, flags: &mut Flags) {
    let config = &node.config;
    let dot = if node.uses_gossip() { "" } else { "." };
    flags.set("bootstrap-master-node-labels", &true);
    flags.set("channels", &config.channels);
    flags.set("cluster-id", node.cluster_name());
    flags.set("dns-internal-suffix", &format!("{dot}internal.{}", node.cluster_name()));
    flags.set("master", &node.is_control_plane());
    flags.set("node-name", &node.node_name);
    match config.dns_zone.as_str() {
        name if name.contains('.') => flags.set("zone", name),
        "" => {}
        id => flags.set("zone", &format!("*/{id}")),
    }
}

fn environment(node: &NodeConfig, protokube: &Protokube) -> Vec<SecretPiece> {
    let mut text = String::new();
    if protokube.channels.is_some() {
        text.push_str(&format!("KUBECONFIG={KOPS_CHANNELS_KUBECONFIG}\n"));
    }
    for (name, value) in node.proxy_environment() {
        text.push_str(&format!("{name}={value}\n"));
    }
    if node.distribution.project == Project::Flatcar {
        text.push_str("PATH=/opt/kops/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n");
    }
    let line =
        |name: &str, given: &str| SecretPiece::EnvironmentLine { name: name.into(), given: given.into() };
    let mut pieces = vec![SecretPiece::Text(text)];
    for name in ["AWS_REGION", "GOSSIP_DNS_CONN_LIMIT", "HCLOUD_TOKEN", "OSS_REGION"] {
        pieces.push(line(name, name));
    }
    for name in ["S3_ENDPOINT", "S3_REGION", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"] {
        pieces.push(line(name, "S3_ENDPOINT"));
    }
    match node.cloud_provider() {
        CloudProvider::DigitalOcean => {
            pieces.push(line("DIGITALOCEAN_ACCESS_TOKEN", "DIGITALOCEAN_ACCESS_TOKEN"));
        }
        CloudProvider::Scaleway => {
            for name in ["SCW_ACCESS_KEY", "SCW_SECRET_KEY", "SCW_DEFAULT_PROJECT_ID"] {
                pieces.push(line(name, "SCW_SECRET_KEY"));
            }
        }
        CloudProvider::Openstack => {
            let insecure =
                node.release().knows_insecure_openstack().then_some("KOPS_OS_TLS_INSECURE_SKIP_VERIFY");
            for name in OPENSTACK.into_iter().chain(insecure) {
                pieces.push(line(name, openstack_cloud_config::LOGIN_VARIABLE));
            }
        }
        _ => {}
    }
    pieces
}

/// How to log in to OpenStack.
const OPENSTACK: [&str; 14] = [
    "OS_TENANT_ID",
    "OS_TENANT_NAME",
    "OS_PROJECT_ID",
    "OS_PROJECT_NAME",
    "OS_PROJECT_DOMAIN_NAME",
    "OS_PROJECT_DOMAIN_ID",
    "OS_DOMAIN_NAME",
    "OS_DOMAIN_ID",
    "OS_USERNAME",
    "OS_PASSWORD",
    "OS_AUTH_URL",
    "OS_REGION_NAME",
    "OS_APPLICATION_CREDENTIAL_ID",
    "OS_APPLICATION_CREDENTIAL_SECRET",
];
