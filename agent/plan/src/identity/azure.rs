//! Which machine a Node is on Azure: `spec.providerID` → the virtual machine, of a scale set or alone → its tags, which only a right to
//! Azure Resource Manager can change; kOps gives none to workers.
//!
//! Sources: upstream's `pkg/nodeidentity/azure/identify.go` and `client.go`, `upup/pkg/fi/cloudup/azure/verifier.go` (names),
//! `CloudTagsForInstanceGroup` in `pkg/model/azuremodel/context.go`, `AutoscalingGroupName` in `pkg/model/names.go`. Unlike there,
//! the machine has to run, as far as Azure's list tells that, and to be of this cluster by its tag. kOps makes machines of scale sets
//! only; others, which Karpenter may make, are identified since kOps 1.35.

#[cfg(test)]
mod tests;

use crate::labels::INSTANCE_GROUP;
use std::collections::BTreeMap;

use super::{Identity, Refusal, quoted};

/// The tag with the name of the cluster.
pub const CLUSTER_TAG: &str = "KubernetesCluster";
/// The tag with the name of the instance group.
pub const INSTANCE_GROUP_TAG: &str = "kops.k8s.io_instancegroup";
/// What the tag with a role of the instance group begins with.
const ROLE_TAG_PREFIX: &str = "k8s.io_role_";
/// What tags begin with that note down a label of the group's nodes, `KEY=VALUE`.
const LABEL_TAG_PREFIX: &str = "k8s.io_cluster_node-template_label_";
/// A label that every node has on Azure, beside that of its group.
const CLUSTER_LABEL: &str = "kops.k8s.io/cluster";
/// The states in which a machine may ask: of its power, or of its provisioning where Azure does not tell that yet.
const AT_WORK: [&str; 5] = ["running", "starting", "creating", "updating", "succeeded"];
const FORM: &str = "azure:///subscriptions/ID/resourceGroups/GROUP/providers/Microsoft.Compute/virtualMachineScaleSets/\
                    nodes.c.example.com/virtualMachines/0, or with virtualMachines/NAME alone";
/// The longest name of a scale set or a machine (Azure, "Naming rules and restrictions for Azure resources").
const LONGEST_NAME: usize = 64;

/// What is known of a cluster on Azure before its API is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AzureCluster {
    pub name: String,
    /// The id of the subscription of its machines.
    pub subscription: String,
    /// The resource group of its machines.
    pub resource_group: String,
}

/// Which machine of the cluster's resource group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MachinePath {
    /// Its scale set, if it is of one, in small letters: to Azure they are all the same.
    pub scale_set: Option<String>,
    /// Its number there, which no other gets while the scale set is there; the name of a machine alone, in small letters.
    pub name: String,
}

impl std::fmt::Display for MachinePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.scale_set {
            Some(scale_set) => write!(f, "{scale_set}_{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// What Azure tells of a machine, as far as it is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AzureMachine {
    pub path: MachinePath,
    /// Its id, which no other ever gets.
    pub vm_id: String,
    /// The name that its operating system was given.
    pub computer_name: String,
    /// Of its power, else of its provisioning, in small letters: `running`, `deallocated`, …
    pub state: String,
    pub tags: BTreeMap<String, String>,
}

impl AzureCluster {
    /// The machine that a providerID names.
    ///
    /// # Errors
    /// If it names none that the cluster could have.
    pub fn machine(&self, provider_id: &str) -> Result<MachinePath, Refusal> {
        let refusal =
            || Refusal::ProviderId { provider_id: provider_id.to_owned(), cloud: "Azure", form: FORM };
        let resource = provider_id.strip_prefix("azure://").ok_or_else(refusal)?;
        self.machine_of_resource(resource).unwrap_or_else(|| Err(refusal()))
    }

    /// How the Node of a machine names it.
    pub fn provider_id(&self, machine: &MachinePath) -> String {
        let AzureCluster { name: _, subscription, resource_group } = self;
        let MachinePath { scale_set, name } = machine;
        let set = scale_set.as_ref().map(|set| format!("virtualMachineScaleSets/{set}/")).unwrap_or_default();
        format!(
            "azure:///subscriptions/{subscription}/resourceGroups/{resource_group}/providers/Microsoft.Compute/\
             {set}virtualMachines/{name}"
        )
    }

    /// The machine that a resource id names; `None` if it is none of a machine.
    ///
    /// # Errors
    /// If it is in another subscription or resource group, or its scale set is called after another cluster.
    pub fn machine_of_resource(&self, resource: &str) -> Option<Result<MachinePath, Refusal>> {
        let found = MachineResource::parse(resource)?;
        let machine = match found.scale_set {
            Some(set) => self.machine_of_scale_set(set, found.machine)?,
            None if is_name(found.machine) => {
                Ok(MachinePath { scale_set: None, name: found.machine.to_ascii_lowercase() })
            }
            None => return None,
        };
        let elsewhere = |owner| Some(Err(self.elsewhere(found.scale_set, found.machine, owner)));
        if !found.subscription.eq_ignore_ascii_case(&self.subscription) {
            return elsewhere(format!("the subscription {}", quoted(found.subscription)));
        }
        if !found.resource_group.eq_ignore_ascii_case(&self.resource_group) {
            return elsewhere(format!("the resource group {}", quoted(found.resource_group)));
        }
        Some(machine)
    }

    /// The machine with a number in a scale set of the cluster's subscription and resource group; `None` if no machine can have
    /// that number, or no scale set that name.
    ///
    /// # Errors
    /// If the scale set is called after another cluster.
    pub fn machine_of_scale_set(&self, set: &str, number: &str) -> Option<Result<MachinePath, Refusal>> {
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        let name = number.parse::<u32>().ok().filter(|_| is_number && is_name(set))?.to_string();
        if !self.is_name_of_own(set) {
            let owner = "a scale set that is called after another cluster".to_owned();
            return Some(Err(self.elsewhere(Some(set), number, owner)));
        }
        Some(Ok(MachinePath { scale_set: Some(set.to_ascii_lowercase()), name }))
    }

    fn elsewhere(&self, set: Option<&str>, machine: &str, owner: String) -> Refusal {
        let instance = set.map_or_else(|| machine.to_owned(), |set| format!("{set}_{machine}"));
        Refusal::OtherCluster { instance: quoted(&instance), owner, cluster: self.name.clone() }
    }

    /// Whether a scale set is called as this cluster's are: `GROUP.CLUSTER`, or `GROUP.masters.CLUSTER`. Others may be, too, where
    /// the name of a cluster ends in that of another one.
    pub fn is_name_of_own(&self, scale_set: &str) -> bool {
        let suffix = format!(".{}", self.name);
        let at = scale_set.len().checked_sub(suffix.len());
        at.and_then(|at| scale_set.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(&suffix))
    }
}

/// The parts of a machine's resource id.
struct MachineResource<'a> {
    subscription: &'a str,
    resource_group: &'a str,
    scale_set: Option<&'a str>,
    /// Its number in the scale set; its name where there is none.
    machine: &'a str,
}

impl<'a> MachineResource<'a> {
    fn parse(resource: &'a str) -> Option<MachineResource<'a>> {
        let parts: Vec<&str> = resource.split('/').collect();
        let [
            "",
            subscriptions,
            subscription,
            resource_groups,
            resource_group,
            providers,
            provider,
            rest @ ..,
        ] = parts.as_slice()
        else {
            return None;
        };
        // To Azure the case of letters is all the same, and its services write it differently.
        let are = |found: &[&str], words: &[&str]| {
            found.iter().zip(words).all(|(found, word)| found.eq_ignore_ascii_case(word))
        };
        let (scale_set, machine) = match *rest {
            [machines, name] if are(&[machines], &["virtualMachines"]) => (None, name),
            [sets, set, machines, number]
                if are(&[sets, machines], &["virtualMachineScaleSets", "virtualMachines"]) =>
            {
                (Some(set), number)
            }
            _ => return None,
        };
        let is_one = are(
            &[subscriptions, resource_groups, providers, provider],
            &["subscriptions", "resourceGroups", "providers", "Microsoft.Compute"],
        );
        is_one.then_some(MachineResource { subscription, resource_group, scale_set, machine })
    }
}

/// The scale set of a resource id and the machine's number there; `None` if it is none of a machine of a scale set.
pub fn scale_set_and_number(resource: &str) -> Option<(&str, &str)> {
    let found = MachineResource::parse(resource)?;
    Some((found.scale_set?, found.machine))
}

/// Whether Azure could have a scale set or a machine of that name.
fn is_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_inner) && !name.starts_with('.')
}

impl AzureMachine {
    /// The name that its Node has.
    pub fn node_name(&self) -> String {
        self.computer_name.to_ascii_lowercase()
    }

    /// Whether its Node may be there.
    pub fn is_at_work(&self) -> bool {
        AT_WORK.contains(&self.state.as_str())
    }

    /// The group that it is of in a cluster, and the labels that kOps noted down for its nodes.
    ///
    /// # Errors
    /// Why it is no machine of the cluster.
    pub fn identify(&self, cluster: &AzureCluster) -> Result<Identity, Refusal> {
        let instance = self.path.to_string();
        let tag = |key| self.tags.get(key).map(String::as_str).filter(|value| !value.is_empty());
        match tag(CLUSTER_TAG) {
            Some(owner) if owner == cluster.name => {}
            Some(owner) => {
                let owner = format!("the cluster {}", quoted(owner));
                return Err(Refusal::OtherCluster { instance, owner, cluster: cluster.name.clone() });
            }
            None => {
                let says = format!("it has no tag {CLUSTER_TAG}");
                return Err(Refusal::NoCluster { instance, says, cluster: cluster.name.clone() });
            }
        }
        if !self.is_at_work() {
            return Err(Refusal::NotRunning { instance, state: self.state.clone() });
        }
        let Some(instance_group) = tag(INSTANCE_GROUP_TAG) else {
            let missing = format!("it has no tag {INSTANCE_GROUP_TAG}");
            return Err(Refusal::NoInstanceGroup { instance, missing });
        };
        Ok(Identity {
            instance_group: instance_group.to_owned(),
            noted_labels: self.noted_labels(&cluster.name, instance_group),
            ..Identity::default()
        })
    }

    /// The identity of the Node of that name, if this machine, which it says it is, is its own. `has_namesake` is whether another
    /// machine of the cluster is known by the Node's name.
    ///
    /// What runs on a machine may call itself otherwise, so another name alone makes no Node an impostor for certain. Where another
    /// machine of the cluster has the Node's name, it does.
    ///
    /// # Errors
    /// Why it is not believed.
    pub fn identify_node(
        &self,
        node: &str,
        has_namesake: bool,
        cluster: &AzureCluster,
    ) -> Result<Identity, Refusal> {
        let (instance, name) = (self.path.to_string(), self.node_name());
        if node != name && has_namesake {
            return Err(Refusal::OtherNode { instance, expected: name });
        }
        let identity = self.identify(cluster)?;
        match node == name {
            true => Ok(identity),
            false => Err(Refusal::OtherName { instance, name }),
        }
    }

    fn noted_labels(&self, cluster: &str, instance_group: &str) -> BTreeMap<String, String> {
        let mut labels: BTreeMap<String, String> = self
            .tags
            .iter()
            .filter_map(|(key, value)| {
                let noted = key.strip_prefix(LABEL_TAG_PREFIX).and_then(|_number| value.split_once('='));
                let role = key.strip_prefix(ROLE_TAG_PREFIX).and_then(role_label);
                noted.or(role).map(|(key, value)| (key.to_owned(), value.to_owned()))
            })
            .collect();
        labels.insert(CLUSTER_LABEL.to_owned(), cluster.to_owned());
        labels.insert(INSTANCE_GROUP.to_owned(), instance_group.to_owned());
        labels
    }
}

/// The label of a role in a tag; `None` if nodes have no label of it.
fn role_label(role: &str) -> Option<(&'static str, &'static str)> {
    match role {
        "control-plane" | "master" => Some(("node-role.kubernetes.io/control-plane", "")),
        "node" => Some(("node-role.kubernetes.io/node", "")),
        _ => None,
    }
}
