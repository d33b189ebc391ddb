//! The lifecycle action of an Auto Scaling group that a machine completes once it has converged.
//!
//! With `warmPool.enableLifecycleHook` the group holds each new instance until the instance reports that it is ready. If the instance does
//! not report within ten minutes (or `lifecycleHookTimeout`), the group abandons it.
//!
//! Source: `completeWarmingLifecycleAction` in upup/pkg/fi/nodeup/command.go; for the hook, `WarmPool` in
//! pkg/model/awsmodel/autoscalinggroup.go; for the groups' names, `AutoscalingGroupName` in pkg/model/names.go. Upstream's nodeup uses the
//! name of a worker group for a group of API servers too, so it never finds the hook of such a group.

use serde::{Deserialize, Serialize};

use kops_agent_spec::facts::CloudFacts;
use kops_agent_spec::{BootConfig, CloudProvider, InstanceGroupRole, NodeupConfig};

/// The name of kOps' lifecycle hook.
pub const WARM_POOL_HOOK: &str = "kops-warmpool";

/// The lifecycle action that holds an instance until it is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleAction {
    pub region: String,
    /// The name of the Auto Scaling group.
    pub group: String,
    #[serde(rename = "instanceID")]
    pub instance_id: String,
}

impl LifecycleAction {
    /// The only cloud on which a lifecycle hook can hold an instance.
    pub const HELD_BY: CloudProvider = CloudProvider::Aws;
}

/// The result of telling an Auto Scaling group that an instance is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The instance enters service or the warm pool.
    Completed,
    /// The Auto Scaling group has no lifecycle hook of kOps, or the hook no longer holds this instance.
    NothingHeld,
    /// No hook holds the instance yet. The instance has just started, so a hook may hold it soon.
    NotHeldYet,
}

/// The lifecycle action that a node completes. `None` if no hook holds the node.
pub fn of_node(boot: &BootConfig, config: &NodeupConfig, facts: &CloudFacts) -> Option<LifecycleAction> {
    let aws = facts.aws.as_ref()?;
    let (group, cluster) = (&boot.instance_group_name, &config.cluster_name);
    let group = match boot.instance_group_role {
        InstanceGroupRole::Node => format!("{group}.{cluster}"),
        InstanceGroupRole::APIServer => format!("{group}.apiservers.{cluster}"),
        // Only groups of nodes and of API servers can have a warm pool.
        _ => return None,
    };
    let is_held = config.enable_lifecycle_hook && boot.cloud_provider == LifecycleAction::HELD_BY;
    is_held.then(|| LifecycleAction {
        region: aws.region.clone(),
        group,
        instance_id: aws.instance_id.clone(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_spec::facts::AwsFacts;

    use super::*;

    fn action(role: InstanceGroupRole, provider: CloudProvider, has_hook: bool) -> Option<LifecycleAction> {
        let boot = "{CloudProvider: aws, ClusterName: c.example.com, InstanceGroupName: workers, InstanceGroupRole: Node}";
        let boot = BootConfig::parse(boot.as_bytes(), "kube_env.yaml").unwrap();
        let boot = BootConfig { cloud_provider: provider, instance_group_role: role, ..boot };
        let config = NodeupConfig {
            cluster_name: "c.example.com".into(),
            enable_lifecycle_hook: has_hook,
            ..NodeupConfig::default()
        };
        let aws = AwsFacts { instance_id: "i-1".into(), region: "eu-west-1".into(), ..AwsFacts::default() };
        of_node(&boot, &config, &CloudFacts { aws: Some(aws), ..CloudFacts::default() })
    }

    #[test]
    fn the_auto_scaling_group_has_kops_name() {
        use InstanceGroupRole::{APIServer, Bastion, ControlPlane, Node};
        let group = |role| action(role, CloudProvider::Aws, true).map(|action| action.group);
        assert_eq!(group(Node).unwrap(), "workers.c.example.com");
        assert_eq!(group(APIServer).unwrap(), "workers.apiservers.c.example.com");
        assert_eq!([group(ControlPlane), group(Bastion)], [None, None]);
        assert_eq!(action(Node, CloudProvider::Aws, false), None);
        assert_eq!(action(Node, CloudProvider::Gce, true), None);
        assert_eq!(action(Node, CloudProvider::Aws, true).unwrap().instance_id, "i-1");
    }
}
