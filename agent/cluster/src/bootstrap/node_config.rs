//! The path in the state store of the configuration that kops-controller serves to machines of a group.

use kops_agent_spec::InstanceGroupRole;

/// The file that kOps writes for a group of this role, below the cluster's folder (upstream: `pkg/model/bootstrapscript.go`). `None` if the
/// group's name is invalid: the name comes from the cloud and becomes part of a path.
///
/// kops-controller always serves the file for `Node`, for machines of any role (upstream: `cmd/kops-controller/pkg/server/node_config.go`).
pub fn nodeup_config_file(role: InstanceGroupRole, instance_group: &str) -> Option<String> {
    let folder = role.folder();
    is_dns_name(instance_group).then(|| format!("igconfig/{folder}/{instance_group}/nodeupconfig.yaml"))
}

/// Whether a text is a valid name of a group or a Node: DNS labels of RFC 1123, separated by dots.
pub fn is_dns_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(is_inner)
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_group_names_become_paths() {
        assert_eq!(
            nodeup_config_file(InstanceGroupRole::Node, "nodes-1.eu").as_deref(),
            Some("igconfig/node/nodes-1.eu/nodeupconfig.yaml")
        );
        assert_eq!(
            nodeup_config_file(InstanceGroupRole::ControlPlane, "control-plane-1a").as_deref(),
            Some("igconfig/control-plane/control-plane-1a/nodeupconfig.yaml")
        );
        let long = "a".repeat(254);
        for name in
            ["", ".", "..", "a..b", "../control-plane", "a/b", "Nodes", "-a", "a-", "a\n", "a%2fb", &long]
        {
            for role in [InstanceGroupRole::Node, InstanceGroupRole::ControlPlane] {
                assert_eq!(nodeup_config_file(role, name), None, "{name:?}");
            }
        }
    }
}
