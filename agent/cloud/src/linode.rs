//! Linode (Akamai): instances send their number to kops-controller, which calls them back.

pub mod facts;
mod instances;

use kops_agent_cluster::identity::linode::LinodeInstance;

use crate::inventory::{Inventory, ListedCloud, ListedControlPlane, ListedVerifier};

pub type LinodeInstances = Inventory<LinodeInstance>;
pub type LinodeVerifier = ListedVerifier<LinodeInstance>;
pub type LinodeControlPlane = ListedControlPlane<LinodeInstance>;

pub(crate) static CLOUD: ListedCloud<LinodeInstance> = ListedCloud::new();
