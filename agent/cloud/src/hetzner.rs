//! Hetzner Cloud: servers send their number to kops-controller, which calls them back.

mod facts;
mod servers;

use kops_agent_cluster::identity::hetzner::HetznerServer;

use crate::inventory::{Inventory, ListedCloud, ListedControlPlane, ListedVerifier};

/// The servers of a cluster.
pub type HetznerServers = Inventory<HetznerServer>;
/// Verifies the servers of a cluster.
pub type HetznerVerifier = ListedVerifier<HetznerServer>;
/// The control plane's access to the servers of a cluster.
pub type HetznerControlPlane = ListedControlPlane<HetznerServer>;

pub(crate) static CLOUD: ListedCloud<HetznerServer> = ListedCloud::new();
