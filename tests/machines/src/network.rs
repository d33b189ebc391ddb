//! A closed network for the machines of one test, and sockets in that network for the test's servers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::{self, Command};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use kops_agent_tests::imds::mac_of;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, socket};

use crate::script;

/// The test's own IPv4 address in the network.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The IPv4 address of the clouds' metadata service.
pub const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// The address family of a network. A network has no addresses of the other family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// 10.99.0.0/16.
    Ipv4,
    /// `2001:db8:99::/64`, the IPv6-only subnet of a cloud.
    Ipv6,
}

impl Family {
    pub fn new(address: IpAddr) -> Family {
        if address.is_ipv6() { Family::Ipv6 } else { Family::Ipv4 }
    }

    /// The address of the machine with this number. The number must be more than 1, because the test itself has the address
    /// with number 1.
    pub fn address(self, number: u8) -> IpAddr {
        match self {
            Family::Ipv4 => Ipv4Addr::new(10, 99, 0, number).into(),
            // EC2's addresses in a subnet differ within the first 80 bits, so bits 65 to 80 also contain the machine's number.
            Family::Ipv6 => {
                let part = 0xff00 | u16::from(number);
                Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, part, 0, 0, number.into()).into()
            }
        }
    }

    /// The test's own address in the network.
    pub fn host(self) -> IpAddr {
        match self {
            Family::Ipv4 => HOST.into(),
            Family::Ipv6 => Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 1).into(),
        }
    }

    /// The address of EC2's metadata service.
    pub fn metadata(self) -> IpAddr {
        match self {
            Family::Ipv4 => METADATA.into(),
            Family::Ipv6 => Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254).into(),
        }
    }

    /// The length, in bits, of the prefix that all addresses of a network share.
    fn prefix_length(self) -> u8 {
        match self {
            Family::Ipv4 => 16,
            Family::Ipv6 => 64,
        }
    }
}

/// Network namespaces that are connected with each other. Dropping this value removes the namespaces.
pub struct Network {
    name: String,
    family: Family,
}

impl Network {
    /// Makes a network with one namespace for each machine. All addresses must be of one family.
    pub fn up(machines: &[(&str, IpAddr)]) -> Network {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| drop(script("machines/sweep", &[])));
        static NETWORKS: AtomicU32 = AtomicU32::new(0);
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let family = machines.first().map_or(Family::Ipv4, |(_, address)| Family::new(*address));
        let network = Network { name: format!("ka{}-{number}", process::id()), family };
        let machine = |(name, address): &(&str, IpAddr)| format!("{name}={address}={}", mac_of(*address));
        let machines: Vec<String> = machines.iter().map(machine).collect();
        let mut arguments = vec!["up", &network.name];
        arguments.extend(machines.iter().map(String::as_str));
        script("machines/net", &arguments);
        network
    }

    pub fn family(&self) -> Family {
        self.family
    }

    /// The name of a machine's network namespace. The machine's container has the same name on this host.
    pub fn namespace(&self, machine: &str) -> String {
        format!("{}-{machine}", self.name)
    }

    /// Limits the rate of the network traffic to a machine. `rate` is in the syntax of tc(8), such as `1gbit`.
    pub fn limit(&self, machine: &str, rate: &str) {
        let shape = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"];
        let tc =
            Command::new("tc").args(["-n", &self.name, "qdisc", "add", "dev", machine]).args(shape).status();
        assert!(tc.unwrap().success(), "the link of {machine} cannot be limited");
    }

    /// A TCP listener that the machines can reach. Port 0 selects a free port.
    pub fn listen(&self, address: impl Into<IpAddr>, port: u16) -> TcpListener {
        let address = address.into();
        self.inside(move || TcpListener::bind((address, port)).unwrap())
    }

    /// A UDP socket that the machines can reach.
    pub fn listen_for_datagrams(&self, address: IpAddr, port: u16) -> UdpSocket {
        self.inside(move || UdpSocket::bind((address, port)).unwrap())
    }

    /// Connects from one of the test's own addresses.
    pub fn connect(&self, from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
        let family = match Family::new(from) {
            Family::Ipv4 => AddressFamily::Inet,
            Family::Ipv6 => AddressFamily::Inet6,
        };
        self.inside(move || {
            let connection = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
            bind(connection.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(from, 0)))?;
            connect(connection.as_raw_fd(), &SockaddrStorage::from(to))?;
            Ok(TcpStream::from(connection))
        })
    }

    /// Gives the test one more address in the network.
    pub fn add_address(&self, address: IpAddr) {
        let family = Family::new(address);
        let address = format!("{address}/{}", family.prefix_length());
        let mut add = vec!["address", "add", &address, "dev", "machines"];
        if family == Family::Ipv6 {
            // Without this flag, duplicate address detection would delay the address. The detection is not needed, because no machine has
            // the test's address.
            add.push("nodad");
        }
        self.ip(&add);
    }

    /// Routes the packets for an address range to this machine, like a cloud's route table.
    pub fn add_route(&self, range: &str, machine: IpAddr) {
        self.ip(&["route", "replace", range, "via", &machine.to_string()]);
    }

    /// Takes a machine's link down: no packet reaches the machine, and no packet leaves it.
    pub fn unplug(&self, machine: &str) {
        self.ip(&["link", "set", "dev", machine, "down"]);
    }

    pub fn plug(&self, machine: &str) {
        self.ip(&["link", "set", "dev", machine, "up"]);
    }

    #[track_caller]
    fn ip(&self, arguments: &[&str]) {
        let ended = Command::new("ip").args(["-n", &self.name]).args(arguments).status().unwrap();
        assert!(ended.success(), "ip {arguments:?}: {ended}");
    }

    fn inside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let namespace = std::fs::File::open(format!("/run/netns/{}", self.name)).unwrap();
        // `setns` moves only the calling thread. A socket stays in the namespace in which it was created, so the socket is
        // created in a thread of its own.
        let work = move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        thread::spawn(work).join().unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        script("machines/net", &["down", &self.name]);
    }
}
