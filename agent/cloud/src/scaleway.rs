//! Scaleway: servers send their UUID to kops-controller, which calls them back.

pub mod facts;
mod servers;

use kops_agent_cluster::identity::scaleway::ScalewayServer;

use crate::inventory::{Inventory, ListedCloud, ListedControlPlane, ListedVerifier};

/// The servers of a cluster.
pub type ScalewayServers = Inventory<ScalewayServer>;
/// Verifies the servers of a cluster.
pub type ScalewayVerifier = ListedVerifier<ScalewayServer>;
/// The control plane's access to the servers of a cluster.
pub type ScalewayControlPlane = ListedControlPlane<ScalewayServer>;

pub(crate) static CLOUD: ListedCloud<ScalewayServer> = ListedCloud::new();
