//! Reads the JSON responses of Azure Resource Manager.
//!
//! Source: Azure Compute REST API, "Virtual Machine Scale Sets", "Virtual Machine Scale Set VMs", "Virtual Machines"; Azure
//! Network REST API, "Network Interfaces"; Azure Resource Manager, "Common error codes".

use std::collections::BTreeMap;
use std::net::IpAddr;

use kops_agent_cluster::identity::azure::{AzureMachine, MachinePath};
use serde::Deserialize;

use crate::verify::seconds_of;

/// Status codes that report a machine's power state begin with this prefix.
const POWER_STATE: &str = "powerstate/";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page<T> {
    pub(super) value: Vec<T>,
    pub(super) next_link: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ScaleSetAnswer {
    pub(super) name: String,
}

/// A machine, in a scale set or standalone.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct MachineAnswer {
    name: String,
    instance_id: String,
    tags: BTreeMap<String, Option<String>>,
    properties: MachineProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MachineProperties {
    vm_id: String,
    provisioning_state: String,
    os_profile: OsProfile,
    instance_view: InstanceView,
    /// `None` for machines that are older than version 2021-11-01 of the API.
    time_created: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OsProfile {
    computer_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InstanceView {
    statuses: Vec<Status>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    code: String,
}

/// The name of a machine in its [`MachinePath`]: the machine's number in a scale set, else the machine's name in lower case.
/// `None` if the number is invalid or the name is empty.
fn name_in_path(scale_set: Option<&str>, name: &str) -> Option<String> {
    match scale_set {
        Some(_) => name.parse::<u32>().ok().map(|number| number.to_string()),
        None => Some(name.to_ascii_lowercase()).filter(|name| !name.is_empty()),
    }
}

impl MachineAnswer {
    /// Reads the machine. `scale_set` is the name of the machine's scale set, if any. `None` if the machine has no number, name or id yet.
    pub(super) fn into_machine(self, scale_set: Option<&str>) -> Option<AzureMachine> {
        let MachineProperties { vm_id, provisioning_state, os_profile, instance_view, time_created } =
            self.properties;
        let provisioning = provisioning_state.to_ascii_lowercase();
        let codes = instance_view.statuses.iter().map(|status| status.code.to_ascii_lowercase());
        let power = codes.filter_map(|code| code.strip_prefix(POWER_STATE).map(str::to_owned)).next();
        let state = match power {
            // While Azure deletes a machine, the machine still has a power state. Therefore the provisioning state decides.
            Some(_) if provisioning == "deleting" => provisioning,
            Some(power) => power,
            None => provisioning,
        };
        let name = if scale_set.is_some() { &self.instance_id } else { &self.name };
        let name = name_in_path(scale_set, name).filter(|_| !vm_id.is_empty())?;
        Some(AzureMachine {
            path: MachinePath { scale_set: scale_set.map(str::to_owned), name },
            vm_id,
            computer_name: os_profile.computer_name,
            state,
            tags: self.tags.into_iter().filter_map(|(key, value)| Some((key, value?))).collect(),
            created: time_created.as_deref().and_then(seconds_of),
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InterfaceAnswer {
    name: String,
    id: String,
    properties: InterfaceProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct InterfaceProperties {
    ip_configurations: Vec<IpConfiguration>,
    /// The machine that the interface is attached to.
    virtual_machine: Reference,
    primary: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reference {
    id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct IpConfiguration {
    properties: IpProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct IpProperties {
    #[serde(rename = "privateIPAddress")]
    private_ip_address: Option<IpAddr>,
}

impl InterfaceAnswer {
    /// The number or name of the machine, and its private addresses in Azure's order. `None` if this is not the machine's first interface.
    /// In a scale set, the first interface has the scale set's name, by kOps' rules.
    pub(super) fn into_addresses(self, scale_set: Option<&str>) -> Option<(String, Vec<IpAddr>)> {
        let (machine, is_first) = match scale_set {
            Some(scale_set) => (&self.id, self.name.eq_ignore_ascii_case(scale_set)),
            None => (&self.properties.virtual_machine.id, self.properties.primary != Some(false)),
        };
        if !is_first {
            return None;
        }
        let mut parts = machine.split('/').skip_while(|part| !part.eq_ignore_ascii_case("virtualMachines"));
        let name = name_in_path(scale_set, parts.nth(1)?)?;
        let configurations = self.properties.ip_configurations.into_iter();
        Some((
            name,
            configurations.filter_map(|configuration| configuration.properties.private_ip_address).collect(),
        ))
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Refusal {
    pub(super) error: RefusalError,
}

#[derive(Debug, Deserialize)]
pub(super) struct RefusalError {
    pub(super) code: String,
    #[serde(default)]
    pub(super) message: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn machine(text: &str) -> Option<AzureMachine> {
        serde_json::from_str::<MachineAnswer>(text).unwrap().into_machine(Some("nodes.c"))
    }

    #[test]
    fn a_machine_is_read() {
        let text = r#"{"name": "nodes.c_3", "instanceId": "3", "tags": {"a": "b", "c": null}, "sku": {"name": "x"},
            "properties": {"vmId": "v", "provisioningState": "Succeeded", "osProfile": {"computerName": "nodes000003"},
            "timeCreated": "2021-06-27T01:02:38.3138469+00:00", "instanceView": {"statuses": [{"code": "ProvisioningState/succeeded", "level": "Info"},
            {"code": "PowerState/running"}]}}}"#;
        let expected = AzureMachine {
            path: MachinePath { scale_set: Some("nodes.c".into()), name: "3".into() },
            vm_id: "v".into(),
            computer_name: "nodes000003".into(),
            state: "running".into(),
            tags: [("a".to_owned(), "b".to_owned())].into(),
            created: Some(1_624_755_758),
        };
        assert_eq!(machine(text), Some(expected));
        for (before, after, state) in [
            ("PowerState/running", "PowerState/deallocated", "deallocated"),
            ("\"Succeeded\"", "\"Deleting\"", "deleting"),
            ("PowerState/running", "HealthState/healthy", "succeeded"),
        ] {
            assert_eq!(machine(&text.replace(before, after)).unwrap().state, state);
        }
    }

    #[test]
    fn a_machine_outside_scale_sets_is_identified_by_its_name() {
        let text = r#"{"name": "General-x7k2", "properties": {"vmId": "v", "provisioningState": "Succeeded",
            "osProfile": {"computerName": "General-x7k2"}}}"#;
        let read = |text: &str| serde_json::from_str::<MachineAnswer>(text).unwrap().into_machine(None);
        let machine = read(text).unwrap();
        assert_eq!(machine.path, MachinePath { scale_set: None, name: "general-x7k2".into() });
        assert_eq!((machine.state.as_str(), machine.node_name().as_str()), ("succeeded", "general-x7k2"));
        assert_eq!(read("{}"), None);

        let text = r#"{"name": "any", "id": "/x/networkInterfaces/any", "properties": {"primary": true, "virtualMachine":
            {"id": "/x/virtualMachines/General-x7k2"}, "ipConfigurations": [{"properties": {"privateIPAddress": "10.0.0.4"}}]}}"#;
        let read = |text: &str| serde_json::from_str::<InterfaceAnswer>(text).unwrap().into_addresses(None);
        assert_eq!(read(text), Some(("general-x7k2".into(), vec!["10.0.0.4".parse().unwrap()])));
        assert_eq!(read(&text.replace("\"primary\": true", "\"primary\": false")), None);
        assert_eq!(read("{}"), None, "it is attached to no machine");
    }

    #[test]
    fn a_machine_without_number_and_id_is_skipped() {
        for text in
            ["{}", r#"{"instanceId": "3"}"#, r#"{"instanceId": "nodes_a1b2", "properties": {"vmId": "v"}}"#]
        {
            assert_eq!(machine(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_come_from_the_interface_that_kops_creates() {
        let text = r#"{"name": "Nodes.c", "id": "/subscriptions/s/x/virtualMachineScaleSets/nodes.c/virtualMachines/3/networkInterfaces/Nodes.c",
            "properties": {"ipConfigurations": [{"properties": {"privateIPAddress": "10.0.0.4", "primary": true}}, {"properties": {}},
            {"properties": {"privateIPAddress": "fd00::4"}}]}}"#;
        let read = |text: &str| {
            serde_json::from_str::<InterfaceAnswer>(text).unwrap().into_addresses(Some("nodes.c"))
        };
        assert_eq!(
            read(text),
            Some(("3".into(), vec!["10.0.0.4".parse().unwrap(), "fd00::4".parse().unwrap()]))
        );
        assert_eq!(read(&text.replace("\"name\": \"Nodes.c\"", "\"name\": \"other\"")), None);
        assert_eq!(read("{}"), None);
        assert_eq!(read(r#"{"name": "nodes.c", "id": "/x/virtualMachines"}"#), None);
    }
}
