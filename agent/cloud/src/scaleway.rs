//! Scaleway: servers send their UUID to kops-controller, which calls them back.

pub mod facts;
mod servers;

use kops_agent_cluster::identity::scaleway::ScalewayServer;

use crate::inventory::{Inventory, ListedCloud, ListedControlPlane, ListedVerifier};

pub type ScalewayServers = Inventory<ScalewayServer>;
pub type ScalewayVerifier = ListedVerifier<ScalewayServer>;
pub type ScalewayControlPlane = ListedControlPlane<ScalewayServer>;

pub(crate) static CLOUD: ListedCloud<ScalewayServer> = ListedCloud::new();
