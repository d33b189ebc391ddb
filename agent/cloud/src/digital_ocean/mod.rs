//! DigitalOcean: droplets, which say their number and are called back.

mod droplets;
pub mod facts;

use kops_agent_plan::identity::digital_ocean::Droplet;

use crate::inventory::{Inventory, ListedCloud, ListedControlPlane, ListedVerifier};

/// The droplets of a cluster.
pub type DigitalOceanDroplets = Inventory<Droplet>;
/// Verifies the droplets of a cluster.
pub type DigitalOceanVerifier = ListedVerifier<Droplet>;
/// The droplets of a cluster, as its control plane asks for them.
pub type DigitalOceanControlPlane = ListedControlPlane<Droplet>;

pub(crate) static CLOUD: ListedCloud<Droplet> = ListedCloud::new();
