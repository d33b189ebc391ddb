//! Serves everything that a machine of `vm-tests` uses, inside the closed network that `tests/machines/net` makes. That is the cloud's
//! metadata service with user-data, the store, two mirrors, Debian's packages, a registry, EC2, DNS and a proxy. Files in `faults/` of
//! its folder make the servers fail.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use kops_agent_tests::ec2::{Ec2, InstanceType};
use kops_agent_tests::example_keys::Keyset;
use kops_agent_tests::example_store::{CONFIG_BASE, REGION};
use kops_agent_tests::front::{Answer, Controls, Front, Head};
use kops_agent_tests::gcs;
use kops_agent_tests::loopback::Identity;
use kops_agent_tests::machine_metadata::{Cloud, GCE_TOKEN, Metadata};
use kops_agent_tests::machine_store;
use kops_agent_tests::name_server::{NameFault, NameServer};
use kops_agent_tests::proxy::Proxy;
use kops_agent_tests::registry;
use kops_agent_tests::released_store;
use kops_agent_tests::s3::S3Server;

const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
const NAMES: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The servers: their short names and DNS names. Server n, counted from 0, has the address 10.99.0.(n + 2).
const SERVERS: [(&str, &str); 8] = [
    ("store", "store.example.com"),
    ("mirror", "mirror.example.com"),
    ("mirror-2", "mirror-2.example.com"),
    ("packages", "packages.example.com"),
    ("proxy", "proxy.example.com"),
    ("gcs", "storage.googleapis.com"),
    ("registry", "registry.example.com"),
    ("ec2", "ec2.example.com"),
];
const PROXY_PORT: u16 = 3128;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the downloads of machines to a folder, at the paths of their URLs, with the programs that tests/kube/build has built.
    Downloads {
        kube: PathBuf,
        /// Folder with a kubelet that is older than the kubelet in KUBE, for `serve --kubelet`.
        kubelet: PathBuf,
        folder: PathBuf,
        /// Versions of kOps whose downloads are written too. The machines of `serve --kops` need these downloads.
        kops: Vec<String>,
    },
    /// Print the addresses that `serve` needs in the network.
    Addresses,
    /// Serve until standard input closes. Prints variables for the boot script, and an empty line when ready.
    Serve(Serve),
}

#[derive(Args)]
struct Serve {
    /// Folder for the store, the boot configs and the controls. Its file `user-data` is the machine's user-data.
    folder: PathBuf,
    #[arg(long)]
    cloud: Cloud,
    /// IPv4 address of the machine.
    #[arg(long)]
    address: Ipv4Addr,
    #[arg(long)]
    hostname: String,
    /// Folder with the programs that tests/kube/build has built.
    #[arg(long)]
    kube: PathBuf,
    /// Version of kOps that writes the store. Default: the version of the example store.
    #[arg(long)]
    kops: Option<String>,
    /// Folder with the machine's kubelet, if it must be older than the kubelet in `--kube`.
    #[arg(long)]
    kubelet: Option<PathBuf>,
    /// Folder that a mirror serves; may be repeated.
    #[arg(long)]
    mirror: Vec<PathBuf>,
    /// Folder with Debian's packages.
    #[arg(long)]
    packages: PathBuf,
    /// Folder with changes to the example store; may be repeated.
    #[arg(long)]
    overlay: Vec<PathBuf>,
    /// Serve the store by TLS with an authority that the machine does not trust. The authority's certificate is `ca.crt` in the folder.
    #[arg(long)]
    private_store: bool,
    /// Let the machine reach only its cloud's metadata service and the proxy.
    #[arg(long)]
    proxied: bool,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Downloads { kube, kubelet, folder, kops } => {
            machine_store::write_downloads(&kube, &kubelet, &kops, &folder)
        }
        Command::Addresses => {
            let lines: String = (0..SERVERS.len()).map(|number| format!("{}\n", address(number))).collect();
            Ok(io::stdout().write_all(lines.as_bytes())?)
        }
        Command::Serve(arguments) => serve(&arguments),
    }
}

fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, 2 + u8::try_from(number).unwrap_or_default())
}

fn serve(arguments: &Serve) -> anyhow::Result<()> {
    let controls = Controls::new(&arguments.folder)?;
    let mut releases = machine_store::built_releases(&arguments.kube)?;
    if let Some(kubelet) = &arguments.kubelet {
        releases.kubernetes = machine_store::version_in(kubelet, "kubernetes")?;
    }
    let store = machine_store::write(
        &arguments.folder,
        arguments.cloud,
        &releases,
        "http://mirror.example.com",
        &arguments.overlay,
    )?;
    if let Some(kops) = &arguments.kops {
        released_store::write_as(&store, kops)?;
    }

    let metadata = Metadata::new(
        arguments.cloud,
        arguments.address,
        &arguments.hostname,
        &arguments.folder.join("user-data"),
    );
    let socket = listen(METADATA, 80)?;
    Front::start("metadata", socket, None, &controls, move |head| metadata.answer(head))?;

    let network = Network { proxied: arguments.proxied };
    for name in ["mirror", "mirror-2"] {
        let folders = arguments.mirror.clone();
        let socket = network.listen(name, 80)?;
        Front::start(name, socket, None, &controls, move |head| Answer::first_file(head, &folders))?;
    }
    let packages = arguments.packages.clone();
    let socket = network.listen("packages", 80)?;
    Front::start("packages", socket, None, &controls, move |head| {
        Answer::first_file(head, std::slice::from_ref(&packages))
    })?;

    let authority = Keyset::make("vm-tests", 1)?;
    fs::write(arguments.folder.join("ca.crt"), &authority.certificate)?;
    let tls = |name: &str| Identity::signed_by(&authority, name)?.server_config();
    let buckets = store.buckets();
    let google = Arc::new(buckets.clone());
    let socket = network.listen("gcs", 443)?;
    let answer = move |head: &Head| gcs::answer(head, &google, GCE_TOKEN);
    Front::start("gcs", socket, Some(tls("storage.googleapis.com")?), &controls, answer)?;

    let s3 = S3Server::start(&buckets)?;
    let origin: SocketAddr =
        s3.endpoint().trim_start_matches("http://").parse().context("the store's address")?;
    let (scheme, port) = if arguments.private_store { ("https", 443) } else { ("http", 80) };
    let socket = network.listen("store", port)?;
    let store_tls = arguments.private_store.then(|| tls("store.example.com")).transpose()?;
    Front::start("store", socket, store_tls, &controls, move |_| Answer::Of(origin))?;

    let registry = registry::start(
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
        Arc::new(machine_store::images(&arguments.kube, &releases)?),
    )?;
    network.pass_on("registry", &registry.url(), &controls)?;
    let ec2 = Ec2::start()?;
    for (name, gpu) in [("m6i.large", false), ("g5.xlarge", true)] {
        ec2.put_type(name, InstanceType { interfaces: 3, addresses: 10, gpu });
    }
    let ec2_is_at = ec2.environment();
    network.pass_on("ec2", &ec2_is_at[0].1, &controls)?;
    start_proxy(network, &controls)?;
    let _names = start_names(network, &controls)?;

    let mut output = io::stdout().lock();
    for (name, value) in s3.environment(REGION) {
        let value = if name == "S3_ENDPOINT" { format!("{scheme}://store.example.com") } else { value };
        writeln!(output, "{name}={value}")?;
    }
    for (name, value) in ec2_is_at.iter().filter(|(name, _)| *name != "AWS_EC2_METADATA_DISABLED") {
        let value = if *name == "AWS_ENDPOINT_URL_EC2" { "http://ec2.example.com" } else { value.as_str() };
        writeln!(output, "{name}={value}")?;
    }
    writeln!(output, "CONFIG_BASE={CONFIG_BASE}\n")?;
    output.flush()?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

/// Chooses the servers' addresses. If `proxied` is set, the proxy is the only one of these servers that the machine can reach. All
/// other servers then listen on this namespace's loopback interface, which only the proxy can reach.
#[derive(Clone, Copy)]
struct Network {
    proxied: bool,
}

impl Network {
    fn address(self, name: &str) -> Option<Ipv4Addr> {
        let number = SERVERS.iter().position(|(known, of_dns)| name == *known || name == *of_dns)?;
        let [.., last] = address(number).octets();
        let is_hidden = self.proxied && SERVERS[number].0 != "proxy";
        Some(if is_hidden { Ipv4Addr::new(127, 0, 1, last) } else { address(number) })
    }

    /// Serves `name`, one of `SERVERS`, at its address. Forwards each request to a loopback server at `url`.
    fn pass_on(self, name: &str, url: &str, controls: &Controls) -> anyhow::Result<()> {
        let origin: SocketAddr =
            url.trim_start_matches("http://").parse().with_context(|| format!("the address of {name}"))?;
        Front::start(name, self.listen(name, 80)?, None, controls, move |_| Answer::Of(origin))
    }

    fn listen(self, name: &str, port: u16) -> anyhow::Result<TcpListener> {
        listen(self.address(name).with_context(|| format!("no server is called {name}"))?, port)
    }
}

fn listen(address: Ipv4Addr, port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind((address, port)).with_context(|| format!("listening at {address}:{port}"))
}

fn start_proxy(network: Network, controls: &Controls) -> anyhow::Result<()> {
    let controls = controls.clone();
    let note = move |line: &str| controls.note("proxy", line, "passed-on");
    Proxy::start_on(network.listen("proxy", PROXY_PORT)?, note, move |target| {
        let (host, port) = target.split_once(':').unwrap_or((target, "80"));
        let unknown = || io::Error::other(format!("{target} is not known"));
        let address = network.address(host).ok_or_else(unknown)?;
        TcpStream::connect((IpAddr::from(address), port.parse().map_err(io::Error::other)?))
    })?;
    Ok(())
}

/// Starts the name server. The name server resolves the names of the servers that the machine can reach. The file `faults/names` sets
/// the fault of the name server.
fn start_names(network: Network, controls: &Controls) -> anyhow::Result<NameServer> {
    let socket = UdpSocket::bind((NAMES, 53)).with_context(|| format!("listening at {NAMES}:53"))?;
    let names: BTreeMap<&str, Ipv4Addr> = SERVERS
        .iter()
        .filter_map(|(_, name)| {
            Some((*name, network.address(name).filter(|address| !address.is_loopback())?))
        })
        .collect();
    let controls = controls.clone();
    NameServer::start_on(socket, move |name, _| {
        let wanted = match controls.words("names").first().map(String::as_str) {
            Some("silent") => Some(NameFault::Silent),
            Some("cannot-tell") => Some(NameFault::CannotTell),
            Some("no-such-name") => Some(NameFault::NoSuchName),
            _ => None,
        };
        let known = names.get(name);
        let outcome = match known {
            _ if wanted.is_some() => "failed",
            Some(_) => "told",
            None => "unknown",
        };
        controls.note("names", &format!("ASK {name}"), outcome);
        let fault = wanted.or(known.is_none().then_some(NameFault::NoSuchName));
        (fault, known.copied().unwrap_or(Ipv4Addr::UNSPECIFIED).into())
    })
}
