//! Scaleway: servers, which say their UUID and are called back.

pub mod facts;
mod servers;

use kops_agent_plan::identity::scaleway::ScalewayServer;

use crate::inventory::{Inventory, ListedCloud, ListedControlPlane, ListedVerifier};

/// The servers of a cluster.
pub type ScalewayServers = Inventory<ScalewayServer>;
/// Verifies the servers of a cluster.
pub type ScalewayVerifier = ListedVerifier<ScalewayServer>;
/// The servers of a cluster, as its control plane asks for them.
pub type ScalewayControlPlane = ListedControlPlane<ScalewayServer>;

pub(crate) static CLOUD: ListedCloud<ScalewayServer> = ListedCloud::new();
