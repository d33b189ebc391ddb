//! The role of an instance group's machines.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstanceGroupRole {
    /// Runs the complete control plane. v1alpha2 names this role `Master`. The agent accepts both names.
    ControlPlane,
    /// Runs an API server without etcd.
    APIServer,
    #[default]
    Node,
    /// The machine to which users connect by SSH from outside of the network. It is not part of Kubernetes.
    Bastion,
    /// Runs only etcd. Upstream defines this role, but cannot configure its machines.
    Etcd,
    /// Runs only the scheduler. Upstream defines this role, but cannot configure its machines.
    Scheduler,
    /// Runs only the controller manager. Upstream defines this role, but cannot configure its machines.
    KubeControllerManager,
}

impl InstanceGroupRole {
    pub const ALL: [InstanceGroupRole; 7] = [
        InstanceGroupRole::ControlPlane,
        InstanceGroupRole::APIServer,
        InstanceGroupRole::Node,
        InstanceGroupRole::Bastion,
        InstanceGroupRole::Etcd,
        InstanceGroupRole::Scheduler,
        InstanceGroupRole::KubeControllerManager,
    ];

    pub fn name(self) -> &'static str {
        match self {
            InstanceGroupRole::ControlPlane => "ControlPlane",
            InstanceGroupRole::APIServer => "APIServer",
            InstanceGroupRole::Node => "Node",
            InstanceGroupRole::Bastion => "Bastion",
            InstanceGroupRole::Etcd => "Etcd",
            InstanceGroupRole::Scheduler => "Scheduler",
            InstanceGroupRole::KubeControllerManager => "KubeControllerManager",
        }
    }

    /// The role with this name. `None` if no role has the name. `Master` means `ControlPlane`.
    pub fn from_name(name: &str) -> Option<InstanceGroupRole> {
        if name == "Master" {
            return Some(InstanceGroupRole::ControlPlane);
        }
        InstanceGroupRole::ALL.into_iter().find(|role| role.name() == name)
    }

    /// The folder under `igconfig/` with this role's groups (upstream: `InstanceGroupRole.ToLowerString`).
    pub fn folder(self) -> &'static str {
        match self {
            InstanceGroupRole::ControlPlane => "control-plane",
            InstanceGroupRole::APIServer => "apiserver",
            InstanceGroupRole::Node => "node",
            InstanceGroupRole::Bastion => "bastion",
            InstanceGroupRole::Etcd => "etcd",
            InstanceGroupRole::Scheduler => "scheduler",
            InstanceGroupRole::KubeControllerManager => "kubecontrollermanager",
        }
    }

    /// Whether the role's machines are Nodes that get their certificates from a bootstrap server. A control plane issues its own
    /// certificates, and a bastion is not a Node.
    pub fn bootstraps_from_server(self) -> bool {
        matches!(self, InstanceGroupRole::Node | InstanceGroupRole::APIServer)
    }

    pub fn runs_api_server(self) -> bool {
        matches!(self, InstanceGroupRole::ControlPlane | InstanceGroupRole::APIServer)
    }
}

impl fmt::Display for InstanceGroupRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for InstanceGroupRole {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for InstanceGroupRole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<InstanceGroupRole, D::Error> {
        let name = String::deserialize(deserializer)?;
        InstanceGroupRole::from_name(&name).ok_or_else(|| {
            let known = InstanceGroupRole::ALL.map(InstanceGroupRole::name).join(", ");
            de::Error::custom(format!("there is no role {name:?}; the roles are {known}"))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_role_reads_its_own_name() {
        for role in InstanceGroupRole::ALL {
            let json = serde_json::to_string(&role).unwrap();
            assert_eq!(serde_json::from_str::<InstanceGroupRole>(&json).unwrap(), role);
        }
    }

    #[test]
    fn master_is_the_old_name_of_the_control_plane() {
        let role: InstanceGroupRole = serde_json::from_str("\"Master\"").unwrap();
        assert_eq!(role, InstanceGroupRole::ControlPlane);
        assert_eq!(role.to_string(), "ControlPlane");
    }

    #[test]
    fn an_unknown_role_is_rejected_with_a_list_of_known_ones() {
        let error = serde_json::from_str::<InstanceGroupRole>("\"Worker\"").unwrap_err().to_string();
        assert!(
            error.contains("there is no role \"Worker\"; the roles are ControlPlane, APIServer"),
            "{error}"
        );
    }
}
