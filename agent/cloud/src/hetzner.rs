//! Hetzner Cloud: servers send their number to kops-controller, which calls them back.

mod facts;
mod servers;

use kops_agent_cluster::identity::hetzner::HetznerServer;

use crate::inventory::{Inventory, ListedCloud, ListedControlPlane, ListedVerifier};

pub type HetznerServers = Inventory<HetznerServer>;
pub type HetznerVerifier = ListedVerifier<HetznerServer>;
pub type HetznerControlPlane = ListedControlPlane<HetznerServer>;

pub(crate) static CLOUD: ListedCloud<HetznerServer> = ListedCloud::new();
