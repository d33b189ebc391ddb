//! Hetzner Cloud: servers, which say their number and are called back.

mod facts;
mod servers;

use kops_agent_plan::identity::hetzner::HetznerServer;

use crate::inventory::{Inventory, ListedCloud, ListedControlPlane, ListedVerifier};

/// The servers of a cluster.
pub type HetznerServers = Inventory<HetznerServer>;
/// Verifies the servers of a cluster.
pub type HetznerVerifier = ListedVerifier<HetznerServer>;
/// The servers of a cluster, as its control plane asks for them.
pub type HetznerControlPlane = ListedControlPlane<HetznerServer>;

pub(crate) static CLOUD: ListedCloud<HetznerServer> = ListedCloud::new();
