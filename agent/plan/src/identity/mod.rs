//! Which machine a Node is, and of which instance group: proven by what its cloud says, never by what the machine says
//! of itself.
//!
//! A kubelet sets `spec.providerID` of its own Node, so that is a claim. It is believed only where the instance that
//! it names is one of the cluster's, runs, and has the Node's very name. [`aws`] decides so from what EC2 tells, [`azure`] from what Azure Resource Manager does, [`gce`] from
//! what Compute Engine does, [`hetzner`] from what Hetzner Cloud does, [`digital_ocean`] from what DigitalOcean does,
//! [`linode`] from what Linode does, [`openstack`] from what Nova does, [`scaleway`] from what Scaleway does; what the last five have in common is in [`machine`]. Machines of no cloud are told by [`host`].

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

/// The most characters of what a machine says that are repeated: a name has no more (RFC 1035).
const LONGEST_NAME: usize = 253;

/// Which machine a Node is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The name of its instance group.
    pub instance_group: String,
    /// The labels of its group, as kOps has noted them down in the cloud.
    pub noted_labels: BTreeMap<String, String>,
    /// Labels that it has for what the instance itself is, unless its group has others.
    pub instance_labels: BTreeMap<String, String>,
    /// Labels that it has whatever its group's are.
    pub proven_labels: BTreeMap<String, String>,
}

/// Why a Node is not believed to be the machine that it says it is, or cannot be given the labels of a group.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// It names no machine, or none of this cloud.
    #[error(
        "spec.providerID is \"{}\", which names no instance of {cloud}, as {form} would",
        quoted(.provider_id)
    )]
    ProviderId {
        provider_id: String,
        /// The cloud, as people call it.
        cloud: &'static str,
        /// What a good one looks like.
        form: &'static str,
    },
    /// The cloud knows no such instance.
    #[error("the instance {instance} does not exist in this account, project or region")]
    NoSuchInstance { instance: String },
    /// No machine of the Node's name was enrolled.
    #[error(
        "the namespace kops-system has no Host {}: enrol the machine (`kops toolbox enroll`); a control plane needs none, and \
         kOps' own channels label it",
        quoted(.name)
    )]
    NotEnrolled {
        /// The name of the Node.
        name: String,
    },
    /// The instance is not at work.
    #[error("the instance {instance} is {state}, and a Node's instance runs")]
    NotRunning {
        instance: String,
        /// Its state, in the cloud's word.
        state: String,
    },
    /// The instance belongs to another cluster.
    #[error("the instance {instance} belongs to {owner}, not to the cluster {cluster}")]
    OtherCluster { instance: String, owner: String, cluster: String },
    /// Nothing that counts says whose the instance is: a tag may be missing for a moment, or have been stripped.
    #[error("the instance {instance} is not known to be of the cluster {cluster}: {says}")]
    NoCluster { instance: String, says: String, cluster: String },
    /// The instance has another name by now, in a cloud in which operators rename instances and Nodes keep their names.
    #[error("the instance {instance}, which spec.providerID names, is called {name}, and its Node is not")]
    OtherName { instance: String, name: String },
    /// The instance is another Node's.
    #[error(
        "the instance {instance}, which spec.providerID names, is the machine of the Node {expected}: this Node claims to \
         be another machine than it is"
    )]
    OtherNode {
        instance: String,
        /// The Node that it is.
        expected: String,
    },
    /// The instance belongs to no group.
    #[error("{instance} is in no instance group: {missing}")]
    NoInstanceGroup {
        instance: String,
        /// What would tell the group.
        missing: String,
    },
    /// Its group is not in the state store.
    #[error(
        "{} is of the instance group {instance_group}, which the cluster does not have (any more)",
        quoted(.instance)
    )]
    UnknownInstanceGroup {
        /// The instance, as its Node names it.
        instance: String,
        instance_group: String,
    },
}

impl Refusal {
    /// Whether the Node is certainly not the machine of this cluster that it says it is: the machine is another Node's, or
    /// its cloud names another cluster. That there is none, that it does not run, or that nothing names its cluster may be
    /// so for a moment only.
    pub fn is_definite(&self) -> bool {
        matches!(self, Refusal::OtherNode { .. } | Refusal::OtherCluster { .. })
    }

    /// The reason as an Event has it.
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

/// What a machine may have written itself, as part of one line of a log or an Event: not more than a name could be. A
/// kubelet may write half a megabyte into its Node.
fn quoted(text: &str) -> String {
    text.chars().take(LONGEST_NAME).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_says_of_itself_fills_no_log() {
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
