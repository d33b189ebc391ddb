//! DigitalOcean: droplets send their number to kops-controller, which calls them back.

mod droplets;
pub mod facts;

use kops_agent_cluster::identity::digital_ocean::Droplet;

use crate::inventory::{Inventory, ListedCloud, ListedControlPlane, ListedVerifier};

/// The droplets of a cluster.
pub type DigitalOceanDroplets = Inventory<Droplet>;
/// Verifies the droplets of a cluster.
pub type DigitalOceanVerifier = ListedVerifier<Droplet>;
/// The control plane's access to the droplets of a cluster.
pub type DigitalOceanControlPlane = ListedControlPlane<Droplet>;

pub(crate) static CLOUD: ListedCloud<Droplet> = ListedCloud::new();
