//! Additions of users to their nodes: hooks, files and mounted volumes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::go_yaml::is_zero;
use super::role::InstanceGroupRole;

/// A systemd unit that the user adds to nodes or disables.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HookSpec {
    /// The unit's name, with or without `.service`.
    pub name: String,
    /// Whether the unit runs. The default is yes.
    pub enabled: Option<bool>,
    /// Roles of the nodes that get the unit. Empty means all roles.
    pub roles: Vec<InstanceGroupRole>,
    pub requires: Vec<String>,
    /// Units that must start after this unit (systemd's `Before=`).
    pub before: Vec<String>,
    pub exec_container: Option<ExecContainerAction>,
    /// The unit's `[Service]` section. If `use_raw_manifest` is set, the complete unit file.
    pub manifest: String,
    /// Whether `manifest` is the complete unit file.
    pub use_raw_manifest: bool,
}

/// A container that a hook runs.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExecContainerAction {
    pub image: String,
    pub command: Vec<String>,
    pub environment: BTreeMap<String, String>,
}

/// A file that the user adds to nodes.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FileAssetSpec {
    pub name: String,
    /// The path on the node. If empty, the file is in kOps' folder of assets.
    pub path: String,
    /// Roles of the nodes that get the file, by their exact internal names. Empty means all roles. Any other word, such as `Master`,
    /// matches no node.
    pub roles: Vec<String>,
    pub content: String,
    pub is_base64: bool,
    /// The permission bits of the file, in octal.
    pub mode: String,
}

/// A disk that the node formats and mounts.
#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeMountSpec {
    pub device: String,
    pub filesystem: String,
    pub format_options: Vec<String>,
    pub mount_options: Vec<String>,
    /// The folder on which the node mounts the volume.
    pub path: String,
}

impl HookSpec {
    pub fn is_for(&self, role: InstanceGroupRole) -> bool {
        self.roles.is_empty() || self.roles.contains(&role)
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled.unwrap_or(true)
    }
}

impl FileAssetSpec {
    pub fn is_for(&self, role: InstanceGroupRole) -> bool {
        self.roles.is_empty() || self.roles.iter().any(|name| name == role.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_of_roles_means_all_roles() {
        for role in InstanceGroupRole::ALL {
            assert!(HookSpec::default().is_for(role));
            assert!(FileAssetSpec::default().is_for(role));
        }
    }

    #[test]
    fn a_role_selects_only_its_own_nodes() {
        let hook = HookSpec { roles: vec![InstanceGroupRole::ControlPlane], ..HookSpec::default() };
        assert!(hook.is_for(InstanceGroupRole::ControlPlane));
        assert!(!hook.is_for(InstanceGroupRole::Node));
    }

    #[test]
    fn a_file_with_the_role_master_matches_no_role() {
        let file = FileAssetSpec { roles: vec!["Master".to_owned()], ..FileAssetSpec::default() };
        assert!(!InstanceGroupRole::ALL.into_iter().any(|role| file.is_for(role)));
        let file = FileAssetSpec { roles: vec!["ControlPlane".to_owned()], ..FileAssetSpec::default() };
        assert!(file.is_for(InstanceGroupRole::ControlPlane));
    }

    #[test]
    fn a_hook_runs_unless_it_is_disabled() {
        assert!(HookSpec::default().is_enabled());
        assert!(!HookSpec { enabled: Some(false), ..HookSpec::default() }.is_enabled());
    }
}
