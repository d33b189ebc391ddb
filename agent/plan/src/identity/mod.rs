//! Which machine a Node is, and of which instance group: proven by what its cloud says, never by what the machine says
//! of itself.
//!
//! A kubelet sets `spec.providerID` of its own Node, so that is a claim. It is believed only where the instance that
//! it names is one of the cluster's, runs, and has the Node's very name. [`aws`] decides so from what EC2 tells, [`gce`] from
//! what Compute Engine does, [`hetzner`] from what Hetzner Cloud does.

pub mod aws;
pub mod gce;
pub mod hetzner;

use std::collections::BTreeMap;

use thiserror::Error;

/// Who a Node is.
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
    #[error("spec.providerID is {provider_id:?}, which names no instance of {cloud}, as {form} would")]
    ProviderId {
        /// What it says.
        provider_id: String,
        /// The cloud, as people call it.
        cloud: &'static str,
        /// What a good one looks like.
        form: &'static str,
    },
    /// The cloud knows no such instance.
    #[error("the instance {instance} does not exist in this account, project or region")]
    NoSuchInstance {
        /// The instance.
        instance: String,
    },
    /// The instance is not at work.
    #[error("the instance {instance} is {state}, and a Node's instance runs")]
    NotRunning {
        /// The instance.
        instance: String,
        /// Its state, in the cloud's word.
        state: String,
    },
    /// The instance belongs to somebody else.
    #[error("the instance {instance} belongs to {owner}, not to the cluster {cluster}")]
    OtherCluster {
        /// The instance.
        instance: String,
        /// Whose it is.
        owner: String,
        /// The cluster that asks.
        cluster: String,
    },
    /// The instance is another Node's.
    #[error(
        "the instance {instance}, which spec.providerID names, is the machine of the Node {expected}: this Node claims to \
         be another machine than it is"
    )]
    OtherNode {
        /// The instance.
        instance: String,
        /// The Node that it is.
        expected: String,
    },
    /// The instance belongs to no group.
    #[error("{instance} is in no instance group: {missing}")]
    NoInstanceGroup {
        /// The instance.
        instance: String,
        /// What would tell the group.
        missing: String,
    },
    /// Its group is not in the state store.
    #[error(
        "{instance} is of the instance group {instance_group}, which the cluster does not have (any more)"
    )]
    UnknownInstanceGroup {
        /// The instance.
        instance: String,
        /// The group.
        instance_group: String,
    },
}

impl Refusal {
    /// The reason as an Event has it.
    pub fn reason(&self) -> &'static str {
        match self {
            Refusal::ProviderId { .. } => "InvalidProviderID",
            Refusal::NoSuchInstance { .. } => "InstanceNotFound",
            Refusal::NotRunning { .. } => "InstanceNotRunning",
            Refusal::OtherCluster { .. } => "InstanceOfOtherCluster",
            Refusal::OtherNode { .. } => "InstanceOfOtherNode",
            Refusal::NoInstanceGroup { .. } => "InstanceGroupUnknown",
            Refusal::UnknownInstanceGroup { .. } => "InstanceGroupNotFound",
        }
    }
}
