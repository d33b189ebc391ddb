//! Linode (Akamai): instances, which say their number and are called back.

pub mod facts;
mod instances;

use kops_agent_plan::identity::linode::LinodeInstance;

use crate::inventory::{Inventory, ListedCloud, ListedControlPlane, ListedVerifier};

/// The instances of a cluster.
pub type LinodeInstances = Inventory<LinodeInstance>;
/// Verifies the instances of a cluster.
pub type LinodeVerifier = ListedVerifier<LinodeInstance>;
/// The instances of a cluster, as its control plane asks for them.
pub type LinodeControlPlane = ListedControlPlane<LinodeInstance>;

pub(crate) static CLOUD: ListedCloud<LinodeInstance> = ListedCloud::new();
