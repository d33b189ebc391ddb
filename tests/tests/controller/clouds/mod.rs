//! What each cloud has of a test's cluster: its API, machines of the cluster's groups, and what tells a machine what it is. One trait
//! for all of them, so that a table of tests has a row for each.

mod aws;
mod azure;
mod gce;
mod listed;
mod metal;

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;

use kops_agent_tests::metadata::Metadata;
use serde_json::{Value, json};

use crate::cluster::{CLUSTER, Cluster};

pub use aws::Aws;
pub use azure::AzureCloud;
pub use gce::GoogleCloud;
pub use listed::{DigitalOceanCloud, HetznerCloud, LinodeCloud, OpenstackCloud, ScalewayCloud};
pub use metal::Metal;

/// Where clouds have their metadata service; Scaleway's is at the second.
pub const METADATA: [Ipv4Addr; 2] = [Ipv4Addr::new(169, 254, 169, 254), Ipv4Addr::new(169, 254, 42, 42)];

/// What serves, for as long as it lives.
pub type Running = Box<dyn Any + Send>;

/// Calls a macro with kOps' name of each cloud as an identifier, and the type of what there is of it.
macro_rules! for_each_cloud {
    ($macro:ident) => {
        $macro!(
            aws: crate::clouds::Aws,
            azure: crate::clouds::AzureCloud,
            digitalocean: crate::clouds::DigitalOceanCloud,
            gce: crate::clouds::GoogleCloud,
            hetzner: crate::clouds::HetznerCloud,
            linode: crate::clouds::LinodeCloud,
            metal: crate::clouds::Metal,
            openstack: crate::clouds::OpenstackCloud,
            scaleway: crate::clouds::ScalewayCloud
        );
    };
}
pub(crate) use for_each_cloud;

/// A machine, which is of the group `nodes` as far as its cloud has groups as large as that.
#[derive(Clone, Copy, Debug)]
pub struct Lot {
    pub number: u32,
    pub address: Ipv4Addr,
}

impl Lot {
    /// The one of this number, at an address which no other number has.
    pub fn numbered(number: u32) -> Lot {
        let [_, b, c, d] = (number + 256).to_be_bytes();
        Lot { number, address: Ipv4Addr::new(10, 64 | b, c, d) }
    }

    /// The name of the machine, where its cloud gives it one.
    pub fn name(self) -> String {
        format!("nodes-{:06x}", self.number)
    }

    fn ip(self) -> IpAddr {
        self.address.into()
    }
}

pub trait Ground: Sync + Sized {
    const NAME: &'static str;
    /// Whether kOps writes configurations of nodes there.
    const KOPS_WRITES_CONFIGS: bool = true;

    /// One without a machine.
    fn start() -> Self;
    fn cluster(&self) -> Cluster;
    /// Adds a machine of the cluster.
    fn create(&self, cluster: &Cluster, lot: Lot);
    /// Adds many machines of the cluster.
    fn create_all(&self, cluster: &Cluster, lots: &[Lot]) {
        lots.iter().for_each(|lot| self.create(cluster, *lot));
    }
    /// The instance group of a machine.
    fn group(&self, lot: Lot) -> String {
        let _ = lot;
        "nodes".to_owned()
    }
    /// The name that a machine has to itself.
    fn hostname(&self, lot: Lot) -> String {
        lot.name()
    }
    /// The name of its Node.
    fn node(&self, lot: Lot) -> String {
        self.hostname(lot)
    }
    /// How its Node names it; empty where there is nothing to name.
    fn provider_id(&self, lot: Lot) -> String;
    /// How often its API was asked for machines.
    fn calls(&self, cluster: &Cluster) -> usize;
    /// How few questions can tell of so many machines, by how many of them the API puts on a page at most (its documentation says so),
    /// and not by how many the controller asks for.
    fn fewest_calls(nodes: usize) -> usize;

    /// Why the bootstrap server refuses what is on another machine, and says that it is this one.
    const REFUSED_FOR: &'static str;
    /// The paths of what machines download there besides.
    const DOWNLOADS: &'static [&'static str] = &[];

    /// Whether machines are called back there.
    const IS_CALLED_BACK: bool = false;

    /// The token that kOps' own nodeup makes on a machine for a request.
    fn upstreams_token(&self, lot: Lot, body: &[u8]) -> String;
    /// Checks what our node's token says of a machine, as kOps' own kops-controller reads it.
    fn check_as_upstream(&self, lot: Lot, token: &str, body: &[u8]);

    /// The options of its bootstrap server.
    fn server(&self) -> Value {
        json!({"provider": {Self::NAME: {}}})
    }
    /// Tells a machine what it is; and a liar at another address the same, without what proves it.
    fn serve_metadata(&self, lot: Lot, liar: Option<Ipv4Addr>) -> Running;
    /// Gives the machine whose root this is what it has besides, in mounts of its own; a liar has something of the kind.
    fn equip(&self, root: &Path, is_liar: bool) -> Option<Running> {
        let _ = (root, is_liar);
        None
    }
    /// Variables of a machine's agent.
    fn variables(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// The scale set, or the like, of a group.
fn of_cluster(group: &str) -> String {
    format!("{group}.{CLUSTER}")
}

fn serve(metadata: Metadata, at: Ipv4Addr) -> Running {
    Box::new(metadata.serve(TcpListener::bind((at, 80)).unwrap()).unwrap())
}
