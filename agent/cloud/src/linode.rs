//! Linode (Akamai): instances send their number to kops-controller, which calls them back.

pub mod facts;
mod instances;

use kops_agent_cluster::identity::linode::LinodeInstance;

use crate::inventory::{Inventory, ListedCloud, ListedControlPlane, ListedVerifier};

/// The instances of a cluster.
pub type LinodeInstances = Inventory<LinodeInstance>;
/// Verifies the instances of a cluster.
pub type LinodeVerifier = ListedVerifier<LinodeInstance>;
/// The control plane's access to the instances of a cluster.
pub type LinodeControlPlane = ListedControlPlane<LinodeInstance>;

pub(crate) static CLOUD: ListedCloud<LinodeInstance> = ListedCloud::new();
