//! Identifies the machine of a Node on Azure: `spec.providerID` → the virtual machine, in a scale set or alone → its tags. Changing tags
//! requires rights to Azure Resource Manager, which kOps does not give to workers.
//!
//! Sources: upstream's `pkg/nodeidentity/azure/identify.go` and `client.go`, `upup/pkg/fi/cloudup/azure/verifier.go` (names),
//! `CloudTagsForInstanceGroup` in `pkg/model/azuremodel/context.go`, `AutoscalingGroupName` in `pkg/model/names.go`. Unlike upstream, this
//! module requires that the machine runs, as far as Azure's list reports that, and that its tag names this cluster. kOps makes only
//! machines of scale sets. kOps identifies other machines, such as Karpenter's, since kOps 1.35.

#[cfg(test)]
mod tests;

use crate::labels::INSTANCE_GROUP;
use std::collections::BTreeMap;

use super::{Identity, Refusal, quoted};

/// The tag with the name of the cluster.
pub const CLUSTER_TAG: &str = "KubernetesCluster";
/// The tag with the name of the instance group.
pub const INSTANCE_GROUP_TAG: &str = "kops.k8s.io_instancegroup";
/// The prefix of the tag with a role of the instance group.
const ROLE_TAG_PREFIX: &str = "k8s.io_role_";
/// The prefix of the tags with the labels of the group's nodes. A number follows the prefix. The tag's value is the label: `KEY=VALUE`.
const LABEL_TAG_PREFIX: &str = "k8s.io_cluster_node-template_label_";
/// A label of every node on Azure, in addition to the instance group's label.
const CLUSTER_LABEL: &str = "kops.k8s.io/cluster";
/// The states in which a machine may bootstrap: a power state, or a provisioning state if Azure does not report the power state yet.
const AT_WORK: [&str; 5] = ["running", "starting", "creating", "updating", "succeeded"];
const FORM: &str = "azure:///subscriptions/ID/resourceGroups/GROUP/providers/Microsoft.Compute/virtualMachineScaleSets/\
                    nodes.c.example.com/virtualMachines/0, or with virtualMachines/NAME alone";
/// The maximum length of a scale set's or machine's name (Azure, "Naming rules and restrictions for Azure resources").
const LONGEST_NAME: usize = 64;

/// The facts of a cluster on Azure that are known without a request to Azure's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AzureCluster {
    pub name: String,
    /// The id of the subscription with the cluster's machines.
    pub subscription: String,
    /// The resource group with the cluster's machines.
    pub resource_group: String,
}

/// The path of a machine in the cluster's resource group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MachinePath {
    /// The machine's scale set in lower case, because Azure ignores case. `None` for a machine outside scale sets.
    pub scale_set: Option<String>,
    /// The machine's number in the scale set. Azure never reuses this number while the scale set exists. For a machine outside scale sets,
    /// this is the machine's name in lower case.
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

/// The fields of an Azure machine that identification uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AzureMachine {
    pub path: MachinePath,
    /// The machine's id. Azure never reuses the id.
    pub vm_id: String,
    /// The hostname of the machine's operating system.
    pub computer_name: String,
    /// The power state, or else the provisioning state, in lower case: `running`, `deallocated`, …
    pub state: String,
    pub tags: BTreeMap<String, String>,
    /// When Azure created the machine, in seconds since 1970; `None` if the answer does not have the time. A machine that is reimaged or
    /// started again keeps this time.
    pub created: Option<i64>,
}

impl AzureCluster {
    /// The machine that a providerID names. Fails if the machine cannot belong to this cluster.
    pub fn machine(&self, provider_id: &str) -> Result<MachinePath, Refusal> {
        let refusal =
            || Refusal::ProviderId { provider_id: provider_id.to_owned(), cloud: "Azure", form: FORM };
        let resource = provider_id.strip_prefix("azure://").ok_or_else(refusal)?;
        self.machine_of_resource(resource).unwrap_or_else(|| Err(refusal()))
    }

    pub fn provider_id(&self, machine: &MachinePath) -> String {
        let AzureCluster { name: _, subscription, resource_group } = self;
        let MachinePath { scale_set, name } = machine;
        let set = scale_set.as_ref().map(|set| format!("virtualMachineScaleSets/{set}/")).unwrap_or_default();
        format!(
            "azure:///subscriptions/{subscription}/resourceGroups/{resource_group}/providers/Microsoft.Compute/\
             {set}virtualMachines/{name}"
        )
    }

    /// The machine that a resource id names. `None` if the resource is not a machine. Fails if the machine is in another subscription or
    /// resource group, or if its scale set's name ends in another cluster's name.
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

    /// The machine with this number in a scale set of the cluster's subscription and resource group. `None` if the number or the name of
    /// the scale set is invalid. Fails if the scale set's name ends in another cluster's name.
    pub fn machine_of_scale_set(&self, set: &str, number: &str) -> Option<Result<MachinePath, Refusal>> {
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        let name = number.parse::<u32>().ok().filter(|_| is_number && is_name(set))?.to_string();
        if !self.is_name_of_own(set) {
            let owner = "a scale set with the name of another cluster".to_owned();
            return Some(Err(self.elsewhere(Some(set), number, owner)));
        }
        Some(Ok(MachinePath { scale_set: Some(set.to_ascii_lowercase()), name }))
    }

    fn elsewhere(&self, set: Option<&str>, machine: &str, owner: String) -> Refusal {
        let instance = set.map_or_else(|| machine.to_owned(), |set| format!("{set}_{machine}"));
        Refusal::OtherCluster { instance: quoted(&instance), owner, cluster: self.name.clone() }
    }

    /// Whether the name of a scale set has this cluster's form: `GROUP.CLUSTER` or `GROUP.masters.CLUSTER`. A scale set of another cluster
    /// also matches if that cluster's name ends in this cluster's name.
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
    /// The machine's number in the scale set. Without a scale set, the machine's name.
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
        // Azure ignores case, and its services spell resource ids in different cases, so case is ignored here.
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

/// The scale set and the machine's number in a resource id. `None` if the resource is not a machine of a scale set.
pub fn scale_set_and_number(resource: &str) -> Option<(&str, &str)> {
    let found = MachineResource::parse(resource)?;
    Some((found.scale_set?, found.machine))
}

/// Whether Azure could have a scale set or a machine with this name.
fn is_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_inner) && !name.starts_with('.')
}

impl AzureMachine {
    pub fn node_name(&self) -> String {
        self.computer_name.to_ascii_lowercase()
    }

    /// Whether the machine is in a state in which its Node may exist.
    pub fn is_at_work(&self) -> bool {
        AT_WORK.contains(&self.state.as_str())
    }

    /// The machine's group in a cluster, and the labels that kOps recorded for the group's nodes.
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

    /// Identifies this machine as the machine of the Node with the name `node`. `has_namesake` says whether a second machine of the cluster
    /// has the Node's name. A Node with another name than the machine's name is rejected. If a second machine has the Node's name, the
    /// refusal says that the Node is an impostor. Otherwise, the refusal only says that the names differ, because a program on the machine
    /// may have chosen a different hostname.
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

/// The node label for a role tag. `None` if the role has no node label.
fn role_label(role: &str) -> Option<(&'static str, &'static str)> {
    match role {
        "control-plane" | "master" => Some(("node-role.kubernetes.io/control-plane", "")),
        "node" => Some(("node-role.kubernetes.io/node", "")),
        _ => None,
    }
}
