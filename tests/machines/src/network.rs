//! A closed network for the machines of one test, and sockets in it for what the test serves them.

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

/// Where the test is in the network.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// Where clouds have their metadata service.
pub const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// Of which family the addresses of a network are; it has none of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// 10.99.0.0/16.
    Ipv4,
    /// `2001:db8:99::/64`, the IPv6-only subnet of a cloud.
    Ipv6,
}

impl Family {
    pub fn of(address: IpAddr) -> Family {
        if address.is_ipv6() { Family::Ipv6 } else { Family::Ipv4 }
    }

    /// The address with this number, which is more than 1.
    pub fn address(self, number: u8) -> IpAddr {
        match self {
            Family::Ipv4 => Ipv4Addr::new(10, 99, 0, number).into(),
            // Addresses that EC2 chooses hardly have their first 80 bits in common.
            Family::Ipv6 => {
                let part = 0xff00 | u16::from(number);
                Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, part, 0, 0, number.into()).into()
            }
        }
    }

    /// Where the test is in the network.
    pub fn host(self) -> IpAddr {
        match self {
            Family::Ipv4 => HOST.into(),
            Family::Ipv6 => Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 1).into(),
        }
    }

    /// Where EC2 has its metadata service.
    pub fn metadata(self) -> IpAddr {
        match self {
            Family::Ipv4 => METADATA.into(),
            Family::Ipv6 => Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254).into(),
        }
    }

    /// How long the part of an address is that all have.
    fn prefix_length(self) -> u8 {
        match self {
            Family::Ipv4 => 16,
            Family::Ipv6 => 64,
        }
    }
}

/// A network; dropping it takes it down.
pub struct Network {
    name: String,
    family: Family,
}

impl Network {
    /// A network with a namespace for each of the machines, whose addresses are of one family.
    pub fn up(machines: &[(&str, IpAddr)]) -> Network {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| drop(script("machines/sweep", &[])));
        static NETWORKS: AtomicU32 = AtomicU32::new(0);
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let family = machines.first().map_or(Family::Ipv4, |(_, address)| Family::of(*address));
        let network = Network { name: format!("ka{}-{number}", process::id()), family };
        let machine = |(name, address): &(&str, IpAddr)| format!("{name}={address}={}", mac_of(*address));
        let machines: Vec<String> = machines.iter().map(machine).collect();
        let mut arguments = vec!["up", &network.name];
        arguments.extend(machines.iter().map(String::as_str));
        script("machines/net", &arguments);
        network
    }

    /// Of which family its addresses are.
    pub fn family(&self) -> Family {
        self.family
    }

    /// A machine's network namespace, which is also its name on this host.
    pub fn namespace(&self, machine: &str) -> String {
        format!("{}-{machine}", self.name)
    }

    /// Has what a machine is sent come no faster than this, in the words of tc(8).
    pub fn limit(&self, machine: &str, rate: &str) {
        let shape = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"];
        let tc =
            Command::new("tc").args(["-n", &self.name, "qdisc", "add", "dev", machine]).args(shape).status();
        assert!(tc.unwrap().success(), "the link of {machine} cannot be limited");
    }

    /// A socket that the machines can reach; port 0 is a free one.
    pub fn listen(&self, address: impl Into<IpAddr>, port: u16) -> TcpListener {
        let address = address.into();
        self.inside(move || TcpListener::bind((address, port)).unwrap())
    }

    /// A socket for datagrams that the machines can reach.
    pub fn listen_for_datagrams(&self, address: IpAddr, port: u16) -> UdpSocket {
        self.inside(move || UdpSocket::bind((address, port)).unwrap())
    }

    /// Connects from an address of the test's.
    ///
    /// # Errors
    /// Nothing listens there, or it cannot be reached.
    pub fn connect(&self, from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
        let family = match Family::of(from) {
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

    /// Gives the test another address in the network.
    pub fn add_address(&self, address: IpAddr) {
        let family = Family::of(address);
        let address = format!("{address}/{}", family.prefix_length());
        let mut add = vec!["address", "add", &address, "dev", "machines"];
        if family == Family::Ipv6 {
            // No other machine has it, and it is to be there at once.
            add.push("nodad");
        }
        self.ip(&add);
    }

    /// Has packets for a range of addresses go to this machine, as a route table of a cloud does.
    pub fn add_route(&self, range: &str, machine: IpAddr) {
        self.ip(&["route", "replace", range, "via", &machine.to_string()]);
    }

    /// Pulls a machine's cable: nothing that it is sent arrives, and nothing that it sends.
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
        // A thread of its own, because a socket is for ever in the namespace of the thread that made it.
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
