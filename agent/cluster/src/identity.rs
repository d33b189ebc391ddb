//! Identifies the machine and the instance group of a Node. The proof comes from the cloud's API, never from the machine itself.
//!
//! A kubelet sets `spec.providerID` of its own Node, so the value is only a claim. The claim is accepted only if the instance belongs to
//! the cluster, runs, and has the Node's name. Each cloud has a module that checks its API's answers: [`aws`] (EC2), [`azure`] (Azure
//! Resource Manager), [`gce`] (Compute Engine), [`hetzner`], [`digital_ocean`], [`linode`], [`openstack`] (Nova) and [`scaleway`]. The last
//! five share [`machine`]. For machines without a cloud, [`host`] reads `Host` objects.

pub mod aws;
pub mod azure;
pub mod digital_ocean;
pub mod gce;
pub mod hetzner;
pub mod host;
pub mod linode;
pub mod machine;
pub mod openstack;
pub mod provider_ids;
pub mod scaleway;
mod tags;

use std::collections::BTreeMap;

use thiserror::Error;

/// A message shows at most this many characters of a text that comes from a machine. A DNS name has at most this length (RFC 1035).
const LONGEST_NAME: usize = 253;

/// The identified machine of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub instance_group: String,
    /// The labels of the machine's group, as kOps recorded them in the cloud.
    pub noted_labels: BTreeMap<String, String>,
    /// Labels for properties of the instance, such as its purchasing option. The group's labels override these labels.
    pub instance_labels: BTreeMap<String, String>,
    /// Labels that override the group's labels.
    pub proven_labels: BTreeMap<String, String>,
}

/// Why a Node is rejected: the Node is not the machine that it claims to be, or it cannot get a group's labels.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The providerID names no machine, or a machine of another cloud.
    #[error(
        "spec.providerID is \"{}\", which is not the ID of an instance of {cloud}, such as {form}",
        quoted(.provider_id)
    )]
    ProviderId {
        provider_id: String,
        cloud: &'static str,
        /// An example of a valid providerID.
        form: &'static str,
    },
    #[error("the instance {instance} does not exist in this account, project or region")]
    NoSuchInstance { instance: String },
    /// No `Host` object has the Node's name.
    #[error(
        "the namespace kops-system has no Host {}: enrol the machine (`kops toolbox enroll`); a control plane needs no Host, because \
         kOps' `channels` program labels its Node",
        quoted(.name)
    )]
    NotEnrolled { name: String },
    #[error("the instance {instance} is {state}, but a Node's instance must run")]
    NotRunning {
        instance: String,
        /// The instance's state, as the cloud's API reports it.
        state: String,
    },
    #[error("the instance {instance} belongs to {owner}, not to the cluster {cluster}")]
    OtherCluster { instance: String, owner: String, cluster: String },
    /// No trusted source names the instance's cluster. A tag may be missing for a moment, or someone may have removed the tag.
    #[error("the instance {instance} is not known to belong to the cluster {cluster}: {says}")]
    NoCluster { instance: String, says: String, cluster: String },
    /// The Node's name is not the instance's current name. In some clouds operators rename instances, and Nodes keep their names.
    #[error(
        "spec.providerID names the instance {instance}, whose name is {name}, but the Node has another name"
    )]
    OtherName { instance: String, name: String },
    #[error(
        "spec.providerID names the instance {instance}, which is the machine of the Node {expected}: this \
         Node claims to be another machine"
    )]
    OtherNode {
        instance: String,
        /// The Node to which the instance belongs.
        expected: String,
    },
    #[error("{instance} is in no instance group: {missing}")]
    NoInstanceGroup {
        instance: String,
        /// Why the instance's group is unknown, such as a missing tag.
        missing: String,
    },
    /// The instance's group is not in the state store.
    #[error(
        "{} belongs to the instance group {instance_group}, which does not exist (any more) in the cluster",
        quoted(.instance)
    )]
    UnknownInstanceGroup {
        /// The instance, as its Node names it.
        instance: String,
        instance_group: String,
    },
}

impl Refusal {
    /// Whether it is certain that the Node wrongly names its machine: the machine belongs to another Node, or the cloud names another
    /// cluster for the machine. The remaining reasons may be temporary, such as a stopped machine or a missing cluster name.
    pub fn is_definite(&self) -> bool {
        matches!(self, Refusal::OtherNode { .. } | Refusal::OtherCluster { .. })
    }

    /// The reason of the Event about this refusal.
    pub fn reason(&self) -> &'static str {
        match self {
            Refusal::ProviderId { .. } => "InvalidProviderID",
            Refusal::NoSuchInstance { .. } => "InstanceNotFound",
            Refusal::NotEnrolled { .. } => "HostNotFound",
            Refusal::NotRunning { .. } => "InstanceNotRunning",
            Refusal::OtherCluster { .. } | Refusal::NoCluster { .. } => "InstanceOfOtherCluster",
            Refusal::OtherNode { .. } | Refusal::OtherName { .. } => "InstanceOfOtherNode",
            Refusal::NoInstanceGroup { .. } => "InstanceGroupUnknown",
            Refusal::UnknownInstanceGroup { .. } => "InstanceGroupNotFound",
        }
    }
}

/// Escapes a text from a machine for one line of a log or an Event, and cuts it to the length of a DNS name. A kubelet can write half a
/// megabyte into its Node.
fn quoted(text: &str) -> String {
    text.chars().take(LONGEST_NAME).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_from_a_node_are_cut_and_escaped() {
        let long = "x\n".repeat(100_000);
        let of_aws = format!("aws:///{long}/i-0123456789abcdef0");
        let on_gce = gce::GceCluster { name: "c".into(), project: "p".into(), region: "r".into() };
        let on_azure =
            azure::AzureCluster { name: "c".into(), subscription: "s".into(), resource_group: "g".into() };
        let many_domains = format!("gce://{}:p/us-test1-a/n", ["a"; 100_000].join("."));
        for refusal in [
            aws::instance_id(&format!("{of_aws}/")).err(),
            gce::instance_path(&of_aws, &on_gce).err(),
            gce::instance_path(&many_domains, &on_gce).err(),
            on_azure.machine(&of_aws).err(),
            on_azure
                .machine(&format!(
                    "azure:///subscriptions/{long}/resourceGroups/g/providers/Microsoft.Compute/\
                virtualMachineScaleSets/s/virtualMachines/1"
                ))
                .err(),
            Some(Refusal::UnknownInstanceGroup { instance: of_aws, instance_group: "nodes".into() }),
        ] {
            let message = refusal.map(|refusal| refusal.to_string()).unwrap_or_default();
            assert!((1..2000).contains(&message.len()), "{}", message.len());
            assert!(!message.contains('\n'));
        }
    }
}
