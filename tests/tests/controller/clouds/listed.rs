//! Clouds whose API lists a project's machines page by page. The bootstrap server calls their machines back, or checks the address of
//! their requests.

use std::net::Ipv4Addr;

use kops_agent_tests::digital_ocean::{self, DigitalOcean, Droplet};
use kops_agent_tests::hetzner::{self, Hetzner};
use kops_agent_tests::linode::{self, Linode};
use kops_agent_tests::listed::ListedMachine;
use kops_agent_tests::openstack::{self, Openstack};
use kops_agent_tests::scaleway::{self, Scaleway};
use serde_json::{Value, json};

use super::{Ground, Lot, METADATA, Running, of_cluster, serve};
use crate::cluster::{CLUSTER, Cluster};

/// The methods that all clouds in this file share. The stand-in for the cloud's API provides the number of requests and the maximum page
/// size. Upstream's token consists of `$prefix` and the machine's id.
macro_rules! listed {
    ($machine:ty, $prefix:literal, $id:expr) => {
        fn calls(&self, _cluster: &Cluster) -> usize {
            self.0.calls()
        }

        fn fewest_calls(nodes: usize) -> usize {
            let [_usual, most] = <$machine as ListedMachine>::API.per_page;
            nodes.div_ceil(most)
        }

        fn upstreams_token(&self, lot: Lot, _body: &[u8]) -> String {
            let id: fn(u64) -> String = $id;
            format!("{} {}", $prefix, id(lot.number.into()))
        }

        fn check_as_upstream(&self, lot: Lot, token: &str, body: &[u8]) {
            assert_eq!(token, self.upstreams_token(lot, body));
        }
    };
}

pub struct HetznerCloud(Hetzner);

impl Ground for HetznerCloud {
    const NAME: &'static str = "hetzner";
    listed!(hetzner::Server, "x-hetzner-id", |number| number.to_string());

    fn start() -> HetznerCloud {
        HetznerCloud(Hetzner::start().unwrap())
    }

    fn cluster(&self) -> Cluster {
        let token = hetzner::TOKEN.to_owned();
        Cluster::start_on(Self::NAME, vec![("HCLOUD_ENDPOINT", self.0.url()), ("HCLOUD_TOKEN", token)])
    }

    fn create(&self, _cluster: &Cluster, lot: Lot) {
        self.0.put(lot.number.into(), hetzner::Server::of_group(CLUSTER, "nodes", &lot.name(), lot.ip()));
    }

    fn provider_id(&self, lot: Lot) -> String {
        format!("hcloud://{}", lot.number)
    }

    const REFUSED_FOR: &'static str = "CallbackFailed";
    const IS_CALLED_BACK: bool = true;

    fn serve_metadata(&self, lot: Lot, _liar: Option<Ipv4Addr>) -> Running {
        serve(hetzner::metadata(lot.number.into(), lot.ip()), METADATA[0])
    }
}

pub struct DigitalOceanCloud(DigitalOcean);

impl Ground for DigitalOceanCloud {
    const NAME: &'static str = "digitalocean";
    listed!(Droplet, "x-digitalocean-droplet-id", |number| number.to_string());

    fn start() -> DigitalOceanCloud {
        DigitalOceanCloud(DigitalOcean::start().unwrap())
    }

    fn cluster(&self) -> Cluster {
        let token = digital_ocean::TOKEN.to_owned();
        let variables = vec![("DIGITALOCEAN_API_URL", self.0.url()), ("DIGITALOCEAN_ACCESS_TOKEN", token)];
        Cluster::start_on(Self::NAME, variables)
    }

    fn create(&self, _cluster: &Cluster, lot: Lot) {
        let droplet = Droplet::of_group(CLUSTER, "nodes", &self.hostname(lot), lot.ip());
        self.0.put(lot.number.into(), droplet);
    }

    /// All droplets of a group have this name.
    fn hostname(&self, _lot: Lot) -> String {
        of_cluster("nodes")
    }

    fn node(&self, lot: Lot) -> String {
        lot.address.to_string()
    }

    fn provider_id(&self, lot: Lot) -> String {
        format!("digitalocean://{}", lot.number)
    }

    const REFUSED_FOR: &'static str = "CallbackFailed";
    const IS_CALLED_BACK: bool = true;

    /// In the configuration of the server, kOps has a shorter name for this cloud.
    fn server(&self) -> Value {
        json!({"provider": {"do": {}}})
    }

    fn serve_metadata(&self, lot: Lot, _liar: Option<Ipv4Addr>) -> Running {
        serve(digital_ocean::metadata(lot.number.into(), lot.ip()), METADATA[0])
    }
}

pub struct LinodeCloud(Linode);

impl Ground for LinodeCloud {
    const NAME: &'static str = "linode";
    listed!(linode::Instance, "x-linode-instance-id", |number| number.to_string());

    fn start() -> LinodeCloud {
        LinodeCloud(Linode::start().unwrap())
    }

    fn cluster(&self) -> Cluster {
        let token = linode::TOKEN.to_owned();
        Cluster::start_on(Self::NAME, vec![("LINODE_URL", self.0.url()), ("LINODE_TOKEN", token)])
    }

    fn create(&self, _cluster: &Cluster, lot: Lot) {
        self.0.put(lot.number.into(), linode::Instance::of_group(CLUSTER, "nodes", &lot.name(), lot.ip()));
    }

    /// The hostname of a machine that runs Linode's image.
    fn hostname(&self, _lot: Lot) -> String {
        "localhost".to_owned()
    }

    fn node(&self, lot: Lot) -> String {
        lot.name()
    }

    fn provider_id(&self, lot: Lot) -> String {
        format!("linode://{}", lot.number)
    }

    const REFUSED_FOR: &'static str = "CallbackFailed";
    const IS_CALLED_BACK: bool = true;

    fn serve_metadata(&self, lot: Lot, _liar: Option<Ipv4Addr>) -> Running {
        serve(linode::metadata(lot.number.into(), &lot.name()), METADATA[0])
    }
}

pub struct ScalewayCloud(Scaleway);

impl Ground for ScalewayCloud {
    const NAME: &'static str = "scaleway";
    listed!(scaleway::Server, "x-scaleway-instance-server-id", scaleway::uuid);

    fn start() -> ScalewayCloud {
        ScalewayCloud(Scaleway::start().unwrap())
    }

    fn cluster(&self) -> Cluster {
        let variables = vec![
            ("SCW_API_URL", self.0.url()),
            ("SCW_SECRET_KEY", scaleway::TOKEN.to_owned()),
            ("SCW_DEFAULT_PROJECT_ID", scaleway::PROJECT.to_owned()),
            ("SCW_DEFAULT_ZONE", scaleway::ZONE.to_owned()),
        ];
        Cluster::start_on(Self::NAME, variables)
    }

    fn create(&self, _cluster: &Cluster, lot: Lot) {
        self.0.put(lot.number.into(), scaleway::Server::of_group(CLUSTER, "nodes", &lot.name(), lot.ip()));
    }

    fn provider_id(&self, lot: Lot) -> String {
        format!("scaleway://instance/{}/{}", scaleway::ZONE, scaleway::uuid(lot.number.into()))
    }

    const REFUSED_FOR: &'static str = "CallbackFailed";
    const IS_CALLED_BACK: bool = true;

    fn serve_metadata(&self, lot: Lot, _liar: Option<Ipv4Addr>) -> Running {
        serve(scaleway::metadata(lot.number.into(), &lot.name()), METADATA[1])
    }
}

pub struct OpenstackCloud(Openstack);

impl Ground for OpenstackCloud {
    const NAME: &'static str = "openstack";
    listed!(openstack::Server, "x-openstack-id", openstack::uuid);

    fn start() -> OpenstackCloud {
        OpenstackCloud(Openstack::start().unwrap())
    }

    fn cluster(&self) -> Cluster {
        Cluster::start_on(Self::NAME, openstack::login(&self.0.origin()))
    }

    fn create(&self, _cluster: &Cluster, lot: Lot) {
        self.0.put(lot.number.into(), openstack::Server::of_group(CLUSTER, "nodes", &lot.name(), lot.ip()));
    }

    fn provider_id(&self, lot: Lot) -> String {
        format!("openstack:///{}", openstack::uuid(lot.number.into()))
    }

    /// The liar sends its request from an address that is not the machine's.
    const REFUSED_FOR: &'static str = "OtherAddress";

    fn serve_metadata(&self, lot: Lot, _liar: Option<Ipv4Addr>) -> Running {
        serve(openstack::metadata(lot.number.into(), &lot.name(), lot.ip()), METADATA[0])
    }
}
