//! Facts that a cloud may not be able to provide again, stored beside the record. So a machine that reboots while its cloud
//! does not respond gets the same configuration as before.

use std::collections::BTreeMap;

use kops_agent_cluster::lifecycle_action::LifecycleAction;
use kops_agent_spec::facts::{AwsFacts, Facts, InstanceType};
use kops_agent_spec::go_yaml::is_zero;
use serde::{Deserialize, Serialize};
use serde_with::apply;

#[apply(_ => #[serde(skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RememberedFacts {
    /// EC2's facts about instance types, by the name of the type, because a stopped machine may be started again with a different type.
    instance_types: BTreeMap<String, InstanceType>,
    /// `local-ipv4` of OpenStack's metadata service.
    #[serde(rename = "openstackLocalIPv4")]
    openstack_local_ipv4: Option<String>,
    /// The lifecycle action of this node, as of the last run that could read the cluster's configuration. Runs that cannot read the
    /// configuration use this action.
    lifecycle_action: Option<LifecycleAction>,
    /// The id of the boot in which this machine became ready as a node.
    ready_in: Option<String>,
    /// The id of the boot in which the cloud was told that the machine is ready.
    told_in: Option<String>,
}

impl RememberedFacts {
    /// Adds the facts from the cloud, and the lifecycle action that holds the node now. A new action resets `ready_in` and `told_in`.
    pub fn with(mut self, facts: &Facts, lifecycle_action: Option<LifecycleAction>) -> RememberedFacts {
        if self.lifecycle_action != lifecycle_action {
            self = RememberedFacts { lifecycle_action, ready_in: None, told_in: None, ..self };
        }
        if let Some(aws) = &facts.cloud.aws
            && let (Some(network_interfaces), Some(gpu)) = (aws.network_interfaces, aws.gpu)
        {
            self.instance_types.insert(aws.instance_type.clone(), InstanceType { network_interfaces, gpu });
        }
        if let Some(openstack) = &facts.cloud.openstack {
            self.openstack_local_ipv4 = Some(openstack.local_ipv4.clone());
        }
        self
    }

    /// The lifecycle action of this node, as of the last run that could read the cluster's configuration.
    pub fn lifecycle_action(&self) -> Option<&LifecycleAction> {
        self.lifecycle_action.as_ref()
    }

    /// Records that this machine became ready as a node in this boot, with the newest configuration that a run has planned.
    pub fn ready_in(self, boot_id: String) -> RememberedFacts {
        RememberedFacts { ready_in: Some(boot_id), ..self }
    }

    /// Records that the cloud was told in this boot that the machine is ready.
    pub fn told_in(self, boot_id: String) -> RememberedFacts {
        RememberedFacts { told_in: Some(boot_id), ..self }
    }

    /// The lifecycle action that must still be completed in this boot. `None` if the machine has no lifecycle action, has not become a node
    /// in this boot, or has already told the cloud in this boot that it is ready.
    pub fn untold_in(&self, boot_id: &str) -> Option<&LifecycleAction> {
        let is_due = self.ready_in.as_deref() == Some(boot_id) && self.told_in.as_deref() != Some(boot_id);
        self.lifecycle_action.as_ref().filter(|_| is_due)
    }

    /// The stored facts about this instance's type.
    pub fn instance_type(&self, aws: &AwsFacts) -> Option<InstanceType> {
        self.instance_types.get(&aws.instance_type).copied()
    }

    /// The address that OpenStack reported for this machine, if the machine still has it. A machine that was created from an image of this
    /// machine remembers the address too, but must not use it.
    pub fn openstack_address(&self, facts: &Facts) -> Option<&str> {
        let address = self.openstack_local_ipv4.as_deref()?;
        let mut own = facts.interfaces.iter().flat_map(|interface| &interface.addresses);
        (address.is_empty() || own.any(|own| own.split('/').next() == Some(address))).then_some(address)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_spec::facts::{Interface, NetworkInterfaceLimits, OpenstackFacts};

    use super::*;

    fn instance(instance_type: &str, max: u32) -> Facts {
        let mut facts = Facts::default();
        facts.cloud.aws = Some(AwsFacts {
            instance_type: instance_type.into(),
            network_interfaces: Some(NetworkInterfaceLimits { max, ipv4_per_interface: 10 }),
            gpu: Some(false),
            ..AwsFacts::default()
        });
        facts
    }

    #[test]
    fn facts_about_the_old_type_do_not_apply_after_a_resize() {
        let remembered = RememberedFacts::default().with(&instance("m5.large", 3), None);
        let of_type = |name: &str| {
            let facts = instance(name, 0);
            remembered.instance_type(facts.cloud.aws.as_ref().unwrap())
        };
        assert_eq!(of_type("m5.large").unwrap().network_interfaces.max, 3);
        assert_eq!(of_type("m5.xlarge"), None);
    }

    #[test]
    fn readiness_is_reported_once_in_each_boot() {
        let action = |instance_id: &str| LifecycleAction {
            region: "eu-west-1".into(),
            group: "nodes.c.example.com".into(),
            instance_id: instance_id.into(),
        };
        let held = RememberedFacts::default().with(&Facts::default(), Some(action("i-1")));
        assert_eq!(held.untold_in("boot"), None);
        let ready = held.ready_in("boot".into());
        assert_eq!(ready.untold_in("boot"), Some(&action("i-1")));
        assert_eq!(ready.untold_in("next boot"), None, "it is not known to be a node yet");
        let told = ready.clone().told_in("boot".into());
        assert_eq!(told.untold_in("boot"), None);
        assert_eq!(told.ready_in("next boot".into()).untold_in("next boot"), Some(&action("i-1")));
        let of_image = ready.with(&Facts::default(), Some(action("i-2")));
        assert_eq!(of_image.untold_in("boot"), None);
    }

    #[test]
    fn a_remembered_address_applies_only_to_the_machine_that_has_it() {
        let mut facts = Facts::default();
        facts.cloud.openstack =
            Some(OpenstackFacts { local_ipv4: "10.0.0.5".into(), ..OpenstackFacts::default() });
        let remembered = RememberedFacts::default().with(&facts, None);
        assert_eq!(remembered.openstack_address(&facts), None);
        let addresses = vec!["fe80::1/64".into(), "10.0.0.5/24".into()];
        facts.interfaces = vec![Interface { addresses, ..Interface::default() }];
        assert_eq!(remembered.openstack_address(&facts), Some("10.0.0.5"));
        assert_eq!(RememberedFacts::default().openstack_address(&facts), None);
    }
}
