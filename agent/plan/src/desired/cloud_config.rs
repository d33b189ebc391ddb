//! The configuration file of Kubernetes' code for the cloud. Cloud controller managers on machines with an API server read it.
//!
//! Source: nodeup/pkg/model/cloudconfig.go.

use crate::resolve::NodeConfig;
use crate::resource::{Content, DesiredState, File, Mode};
use kops_agent_spec::CloudProvider;

use super::{openstack_cloud_config, paths};

/// Adds the configuration file of the cloud provider. Up to kOps 1.35, also adds a second file for Kubernetes' in-tree
/// cloud providers.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let is_external = node.config.kubelet_config.cloud_provider == "external";
    if !node.has_api_server() && is_external {
        return;
    }
    let has_in_tree = node.release().has_in_tree_cloud_config();
    // After kOps 1.35, Azure's configuration is a Secret of the cluster, and not a file.
    if node.cloud_provider() == CloudProvider::Azure && !has_in_tree {
        return;
    }
    let families: Vec<String> =
        node.config.node_ip_families.iter().map(|family| format!("NodeIPFamilies = {family}")).collect();
    add_file(node, paths::CLOUD_CONFIG, families, state);
    if has_in_tree {
        add_file(node, paths::IN_TREE_CLOUD_CONFIG, Vec::new(), state);
    }
}

/// Adds one configuration file. `for_aws_controller` has the settings that only AWS' cloud controller manager knows.
fn add_file(node: &NodeConfig, path: &str, for_aws_controller: Vec<String>, state: &mut DesiredState) {
    let content = match node.cloud_provider() {
        CloudProvider::Aws => global(&[aws(node), for_aws_controller].concat()),
        CloudProvider::Azure => azure(node),
        CloudProvider::Gce => global(&gce(node)),
        CloudProvider::Openstack => openstack_cloud_config::content(node),
        _ => global(&[]),
    };
    let file = File::new(path, content);
    // On OpenStack, the file contains the cloud's credentials. Upstream lets all users read the file. Here only root may read it, because
    // no program of kOps reads it: the cloud controller manager (not root) and the CSI driver mount the Secret `openstack-project` instead
    // (upup/models/cloudup/resources/addons/openstack.addons.k8s.io, storage-openstack.addons.k8s.io). On other clouds, programs of kOps
    // mount the file, which contains no secrets.
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

/// The configuration of Azure's cloud provider (kOps up to 1.35).
fn azure(node: &NodeConfig) -> Content {
    let config = &node.config;
    let mut settings = serde_json::Map::new();
    let mut set = |name: &str, value: serde_json::Value| {
        if value != "" {
            settings.insert(name.to_owned(), value);
        }
    };
    set("subscriptionId", config.azure_subscription_id.as_str().into());
    set("cloudConfigType", "file".into());
    set("vmType", "vmss".into());
    set("resourceGroup", config.azure_resource_group.as_str().into());
    set("location", config.azure_location.as_str().into());
    set("routeTableName", config.azure_route_table_name.as_str().into());
    set("useInstanceMetadata", true.into());
    set("useManagedIdentityExtension", true.into());
    set("disableAvailabilitySetNodes", true.into());
    let network = match config.networking.network_id.as_str() {
        "" => node.cluster_name(),
        network => network,
    };
    settings.insert("tenantId".into(), config.azure_tenant_id.as_str().into());
    settings.insert("vnetName".into(), network.into());
    Content::Text(serde_json::Value::Object(settings).to_string())
}
