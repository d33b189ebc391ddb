//! The configuration of Kubernetes' code for the cloud, for what reads it from a file: cloud controller
//! managers on machines with an API server.
//!
//! Source: nodeup/pkg/model/cloudconfig.go.

use crate::resolve::NodeConfig;
use crate::resource::{Content, DesiredState, File, Mode};
use kops_agent_spec::CloudProvider;

use super::{openstack_cloud_config, paths};

/// Adds the file. On Azure it is a Secret of the cluster's.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let is_external = node.config.kubelet_config.cloud_provider == "external";
    if node.cloud_provider() == CloudProvider::Azure || (!node.has_api_server() && is_external) {
        return;
    }
    let content = match node.cloud_provider() {
        CloudProvider::Aws => global(&aws(node)),
        CloudProvider::Gce => global(&gce(node)),
        CloudProvider::Openstack => openstack_cloud_config::content(node),
        _ => global(&[]),
    };
    let file = File::new(paths::CLOUD_CONFIG, content);
    // Upstream lets all users read it. On OpenStack it has the login, and nothing that kOps runs reads it there: the cloud controller
    // manager, which is no root, and the CSI driver have the Secret `openstack-project` mounted in its place
    // (upup/models/cloudup/resources/addons/openstack.addons.k8s.io, storage-openstack.addons.k8s.io). Elsewhere those
    // programs mount the file itself, and nothing in it is secret.
    let is_login = node.cloud_provider() == CloudProvider::Openstack;
    state.add(if is_login { file.mode(Mode::PRIVATE) } else { file });
}

fn global(lines: &[String]) -> Content {
    Content::Text(format!("[global]\n{}\n", lines.join("\n")))
}

fn aws(node: &NodeConfig) -> Vec<String> {
    let config = &node.config;
    let mut lines = Vec::new();
    lines.extend(
        config
            .disable_security_group_ingress
            .map(|disabled| format!("DisableSecurityGroupIngress = {disabled}")),
    );
    lines.extend(config.elb_security_group.as_ref().map(|group| format!("ElbSecurityGroup = {group}")));
    lines
        .extend(config.nlb_security_group_mode.as_ref().map(|mode| format!("NLBSecurityGroupMode = {mode}")));
    lines.extend(config.node_ip_families.iter().map(|family| format!("NodeIPFamilies = {family}")));
    lines
}

fn gce(node: &NodeConfig) -> Vec<String> {
    let config = &node.config;
    let mut lines = Vec::new();
    lines.extend(config.node_tags.as_ref().map(|tags| format!("node-tags = {tags}")));
    lines.extend(
        config.node_instance_prefix.as_ref().map(|prefix| format!("node-instance-prefix = {prefix}")),
    );
    lines.extend(config.multizone.map(|multizone| format!("multizone = {multizone}")));
    lines
}
