//! A closed network for the machines of one test, and sockets in it for what the test serves them.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::{self, Command};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};

use crate::script;

/// Where the test is in the network.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// Where clouds have their metadata service.
pub const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// A network; dropping it takes it down.
pub struct Network {
    name: String,
}

impl Network {
    /// A network with a namespace for each of the machines.
    pub fn up(machines: &[(&str, Ipv4Addr)]) -> Network {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| drop(script("machines/sweep", &[])));
        static NETWORKS: AtomicU32 = AtomicU32::new(0);
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let network = Network { name: format!("ka{}-{number}", process::id()) };
        let pairs: Vec<String> =
            machines.iter().map(|(machine, address)| format!("{machine}={address}")).collect();
        let mut arguments = vec!["up", &network.name];
        arguments.extend(pairs.iter().map(String::as_str));
        script("machines/net", &arguments);
        network
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
    pub fn listen(&self, address: Ipv4Addr, port: u16) -> TcpListener {
        self.inside(move || TcpListener::bind((address, port)).unwrap())
    }

    /// A socket for datagrams that the machines can reach.
    pub fn listen_for_datagrams(&self, address: Ipv4Addr, port: u16) -> UdpSocket {
        self.inside(move || UdpSocket::bind((address, port)).unwrap())
    }

    /// Connects from an address of the test's.
    ///
    /// # Errors
    /// Nothing listens there, or it cannot be reached.
    pub fn connect(&self, from: Ipv4Addr, to: SocketAddrV4) -> io::Result<TcpStream> {
        self.inside(move || {
            let connection = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
            bind(connection.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(from, 0)))?;
            connect(connection.as_raw_fd(), &SockaddrIn::from(to))?;
            Ok(TcpStream::from(connection))
        })
    }

    /// Gives the test another address in the network.
    pub fn add_address(&self, address: Ipv4Addr) {
        self.ip(&["address", "add", &format!("{address}/16"), "dev", "machines"]);
    }

    /// Has packets for a range of addresses go to this machine, as a route table of a cloud does.
    pub fn add_route(&self, range: &str, machine: Ipv4Addr) {
        self.ip(&["route", "replace", range, "via", &machine.to_string()]);
    }

    /// Pulls a machine's cable: nothing that it is sent arrives, and nothing that it sends.
    pub fn unplug(&self, machine: &str) {
        self.ip(&["link", "set", "dev", machine, "down"]);
    }

    /// Puts it back.
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
