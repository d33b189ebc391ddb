//! DigitalOcean: droplets send their number to kops-controller, which calls them back.

mod droplets;
pub mod facts;

use kops_agent_cluster::identity::digital_ocean::Droplet;

use crate::inventory::{Inventory, ListedCloud, ListedControlPlane, ListedVerifier};

pub type DigitalOceanDroplets = Inventory<Droplet>;
pub type DigitalOceanVerifier = ListedVerifier<Droplet>;
pub type DigitalOceanControlPlane = ListedControlPlane<Droplet>;

pub(crate) static CLOUD: ListedCloud<Droplet> = ListedCloud::new();
