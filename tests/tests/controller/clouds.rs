//! The parts of each cloud in a test's cluster: its API, machines of the cluster's groups, and the metadata service of a machine. One
//! trait describes all clouds, so that a table of tests has a row for each.

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

/// The addresses of clouds' metadata services. The second address is Scaleway's.
pub const METADATA: [Ipv4Addr; 2] = [Ipv4Addr::new(169, 254, 169, 254), Ipv4Addr::new(169, 254, 42, 42)];

/// A running server. Dropping it stops the server.
pub type Running = Box<dyn Any + Send>;

/// Calls a macro once, with a list of all clouds. Each entry has kOps' name for the cloud, as an identifier, and the cloud's type.
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

/// A machine. It is in the group `nodes`, unless the groups of its cloud are too small for all machines.
#[derive(Clone, Copy, Debug)]
pub struct Lot {
    pub number: u32,
    pub address: Ipv4Addr,
}

impl Lot {
    /// The machine with this number. Its address is different for each number.
    pub fn numbered(number: u32) -> Lot {
        let [_, b, c, d] = (number + 256).to_be_bytes();
        Lot { number, address: Ipv4Addr::new(10, 64 | b, c, d) }
    }

    /// The name of the machine, on clouds that give machines a name.
    pub fn name(self) -> String {
        format!("nodes-{:06x}", self.number)
    }

    fn ip(self) -> IpAddr {
        self.address.into()
    }
}

pub trait Ground: Sync + Sized {
    const NAME: &'static str;
    /// Whether kOps writes the nodeup configuration of each instance group to the store on this cloud.
    const KOPS_WRITES_CONFIGS: bool = true;

    /// Starts a cloud without machines.
    fn start() -> Self;
    fn cluster(&self) -> Cluster;
    /// Adds a machine to the cluster.
    fn create(&self, cluster: &Cluster, lot: Lot);
    fn create_all(&self, cluster: &Cluster, lots: &[Lot]) {
        lots.iter().for_each(|lot| self.create(cluster, *lot));
    }
    fn group(&self, lot: Lot) -> String {
        let _ = lot;
        "nodes".to_owned()
    }
    /// The hostname that the machine itself reports.
    fn hostname(&self, lot: Lot) -> String {
        lot.name()
    }
    /// The name of a machine's Node.
    fn node(&self, lot: Lot) -> String {
        self.hostname(lot)
    }
    /// The provider ID of a machine's Node. Empty if the cloud has no provider IDs.
    fn provider_id(&self, lot: Lot) -> String;
    /// The number of requests for machines that the cloud's API has received.
    fn calls(&self, cluster: &Cluster) -> usize;
    /// The minimum number of requests that can list this many machines. The number follows from the maximum page size in the API's
    /// documentation, not from the page size that the controller requests.
    fn fewest_calls(nodes: usize) -> usize;

    /// The reason for which the bootstrap server rejects a liar that claims to be a machine.
    const REFUSED_FOR: &'static str;
    /// The paths of additional downloads on this cloud.
    const DOWNLOADS: &'static [&'static str] = &[];

    /// Whether the bootstrap server verifies machines of this cloud by a call-back.
    const IS_CALLED_BACK: bool = false;

    /// The token that kOps' own nodeup makes for a request of this machine.
    fn upstreams_token(&self, lot: Lot, body: &[u8]) -> String;
    /// Checks that a token of kops-agent contains what kOps' own kops-controller reads.
    fn check_as_upstream(&self, lot: Lot, token: &str, body: &[u8]);

    /// The configuration of the cluster's bootstrap server.
    fn server(&self) -> Value {
        json!({"provider": {Self::NAME: {}}})
    }
    /// Serves the metadata of a machine. If `liar` is set, a liar at that address gets the same metadata, but not the proof of identity.
    fn serve_metadata(&self, lot: Lot, liar: Option<Ipv4Addr>) -> Running;
    /// Adds the files and devices that machines of this cloud have, such as a TPM. `root` is the machine's root folder. The caller is in
    /// the machine's mount namespace. A liar gets invalid files and devices.
    fn equip(&self, root: &Path, is_liar: bool) -> Option<Running> {
        let _ = (root, is_liar);
        None
    }
    /// The environment variables of the agent on a machine.
    fn variables(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// The name of a group's object in the cloud, such as a scale set.
fn of_cluster(group: &str) -> String {
    format!("{group}.{CLUSTER}")
}

fn serve(metadata: Metadata, at: Ipv4Addr) -> Running {
    Box::new(metadata.serve(TcpListener::bind((at, 80)).unwrap()).unwrap())
}
