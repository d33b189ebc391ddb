//! The servers in the closed network of the cluster's machines: the metadata service, the state store, a mirror, Debian's packages,
//! a registry, EC2 and STS. Machines use the servers' usual DNS names. The last three use TLS, with a CA that the machines' image
//! trusts.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kops_agent_machines::assets::assets;
use kops_agent_machines::network::{Family, Network};
use kops_agent_tests::ec2::Ec2;
use kops_agent_tests::example_keys::Keyset;
use kops_agent_tests::example_store::REGION;
use kops_agent_tests::front::{Answer, Controls, Front};
use kops_agent_tests::imds::{self, Instance, item_of_interface};
use kops_agent_tests::loopback::{Identity, LoopbackServer};
use kops_agent_tests::name_server::{NameFault, NameServer};
use kops_agent_tests::registry::{self, Images};
use kops_agent_tests::s3::S3Server;
use kops_agent_tests::sts::Sts;
use parking_lot::Mutex;

pub const MIRROR: &str = "mirror.example.com";
pub const REGISTRY: &str = "registry.example.com";
const STORE: &str = "store.example.com";
const PACKAGES: &str = "packages.example.com";

/// The short name and the DNS name of each server. The folder `faults/` and the file `requests` of the test use the short names.
const SERVERS: [(&str, &str); 6] = [
    ("store", STORE),
    ("mirror", MIRROR),
    ("packages", PACKAGES),
    ("registry", REGISTRY),
    ("ec2", "ec2.eu-west-1.amazonaws.com"),
    ("sts", "sts.eu-west-1.amazonaws.com"),
];

/// The stand-in servers that the machines use. Dropping this value stops the servers, so end the machines first.
pub struct World {
    pub ec2: Ec2,
    pub sts: Sts,
    s3: S3Server,
    authority: Keyset,
    folder: PathBuf,
    /// The address of the registry that currently serves the name `REGISTRY`.
    registry: Arc<Mutex<SocketAddr>>,
    _registries: Mutex<Vec<LoopbackServer>>,
    _others: Vec<LoopbackServer>,
    _names: NameServer,
}

impl World {
    /// Starts servers for three folders: the buckets of the state store, the files of the mirror, and Debian's packages.
    pub fn start(
        network: &Network,
        folder: &Path,
        buckets: &Path,
        mirror: &[PathBuf],
        packages: &Path,
    ) -> World {
        let controls = Controls::new(folder).unwrap();
        let authority = Keyset::make("clouds-ca", 1).unwrap();
        let ec2 = Ec2::start().unwrap();
        let sts = Sts::start().unwrap();
        let s3 = S3Server::start(buckets).unwrap();
        let images = registry_of(assets().images.clone());
        let registry = Arc::new(Mutex::new(socket_of(&images.url())));
        for (number, (server, name)) in SERVERS.into_iter().enumerate() {
            let address = address_of(network.family(), number);
            network.add_address(address);
            let identity = Identity::signed_by(&authority, name).unwrap().server_config().unwrap();
            let origin = match server {
                "store" => Some(s3.endpoint()),
                "ec2" => Some(ec2.environment()[0].1.clone()),
                "sts" => Some(sts.url()),
                _ => None,
            };
            let is_tls = matches!(server, "registry" | "ec2" | "sts");
            let (port, tls) = if is_tls { (443, Some(identity)) } else { (80, None) };
            let socket = network.listen(address, port);
            let started = match origin {
                None if server == "registry" => {
                    let registry = registry.clone();
                    Front::start(server, socket, tls, &controls, move |_| Answer::Of(*registry.lock()))
                }
                Some(url) => {
                    let origin = socket_of(&url);
                    Front::start(server, socket, tls, &controls, move |_| Answer::Of(origin))
                }
                None => {
                    let folders =
                        if server == "mirror" { mirror.to_vec() } else { vec![packages.to_owned()] };
                    Front::start(server, socket, tls, &controls, move |head| {
                        Answer::first_file(head, &folders)
                    })
                }
            };
            started.unwrap();
        }
        let family = network.family();
        let numbered = SERVERS.iter().enumerate();
        let names: BTreeMap<&str, IpAddr> =
            numbered.map(|(number, (_, name))| (*name, address_of(family, number))).collect();
        let names = NameServer::start_on(network.listen_for_datagrams(family.host(), 53), move |name, _| {
            let known = names.get(name).copied();
            (known.is_none().then_some(NameFault::NoSuchName), known.unwrap_or(family.host()))
        });
        World {
            ec2,
            sts,
            s3,
            authority,
            folder: folder.to_owned(),
            registry,
            _registries: Mutex::new(vec![images]),
            _others: Vec::new(),
            _names: names.unwrap(),
        }
    }

    /// Starts EC2's metadata service, which serves each instance its own metadata.
    pub fn tell(&mut self, network: &Network, instances: BTreeMap<IpAddr, Instance>) {
        let prefixes = self.ec2.prefixes();
        let told = move |client| {
            let mut told = instances.get(&client).cloned().unwrap_or_default();
            if let (Some(id), Some(mac)) = (told.get("instance-id"), told.get("mac")) {
                let (item, prefixes) = (item_of_interface(mac, "ipv6-prefix"), prefixes(id));
                if !prefixes.is_empty() {
                    told.insert(item, prefixes.join("\n"));
                }
            }
            told
        };
        let socket = network.listen(network.family().metadata(), 80);
        self._others.push(imds::start_telling(socket, told).unwrap());
    }

    /// Replaces all images of the registry by these images.
    pub fn serve_images(&self, images: Images) {
        let server = registry_of(Arc::new(images));
        *self.registry.lock() = socket_of(&server.url());
        self._registries.lock().push(server);
    }

    /// The environment variables that give a machine access to the state store, as kOps exports them in user-data.
    pub fn store_environment(&self) -> Vec<String> {
        let of_s3 = self.s3.environment(REGION).into_iter();
        of_s3
            .map(|(name, value)| match name {
                "S3_ENDPOINT" => format!("{name}=http://{STORE}"),
                _ => format!("{name}={value}"),
            })
            .collect()
    }

    /// The CA certificate of the TLS servers. The machines' image trusts it.
    pub fn authority(&self) -> &str {
        &self.authority.certificate
    }

    /// Makes a server respond with this fault from now on. [`Controls`] lists the faults.
    pub fn fail(&self, server: &str, fault: &str) {
        fs::write(self.folder.join("faults").join(server), fault).unwrap();
    }

    pub fn mend(&self, server: &str) {
        fs::remove_file(self.folder.join("faults").join(server)).unwrap();
    }
}

fn registry_of(images: Arc<Images>) -> LoopbackServer {
    registry::start(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), images).unwrap()
}

fn socket_of(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").parse().unwrap()
}

fn address_of(family: Family, number: usize) -> IpAddr {
    family.address(u8::try_from(2 + number).unwrap())
}

/// The line for Debian's packages in a machine's `sources.list`.
pub fn apt_source() -> String {
    format!("deb [trusted=yes] http://{PACKAGES} ./\n")
}
