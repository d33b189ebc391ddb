//! Whom connections and requests come from, for a share to be given to each.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use crate::identify::Cloud;
use kops_agent_cloud::hetzner::servers::HetznerServers;

/// How many leading bits of an IPv6 address tell one machine from another: behind them a machine has as many addresses
/// as it likes, before them it has none but what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachinePrefix(u32);

impl MachinePrefix {
    /// A prefix that EC2 delegates to an instance. All machines of a subnet are in one /64, and what an instance sends
    /// from an address that it was not given, EC2 drops (EC2 User Guide, "Prefix delegation for Amazon EC2 network
    /// interfaces").
    pub const AWS: MachinePrefix = MachinePrefix(80);
    /// The range of a network interface, of the /64 of its subnet (Google Cloud, "VPC: Subnets", "IPv6 subnet ranges").
    pub const GCE: MachinePrefix = MachinePrefix(96);
    /// The network that is given to one machine elsewhere, Hetzner's servers among them.
    pub const ELSEWHERE: MachinePrefix = MachinePrefix(64);

    /// Where machines are in this cloud.
    pub fn of(cloud: &Cloud) -> MachinePrefix {
        match cloud {
            Cloud::Aws { .. } => MachinePrefix::AWS,
            Cloud::Gce(_) => MachinePrefix::GCE,
            Cloud::Hetzner(_) => MachinePrefix::ELSEWHERE,
        }
    }

    /// Where an address is from.
    pub fn origin(self, address: IpAddr) -> Origin {
        let own = match address.to_canonical() {
            IpAddr::V6(address) => {
                let mask = u128::MAX << (u128::BITS - self.0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
            address => address,
        };
        Origin { address: own, claimed: None }
    }
}

/// Whether an address is one machine's, or that of a load balancer, which all machines have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Each machine connects from an address of its own.
    Machines,
    /// A load balancer connects for them. It speaks TCP and says nothing of where it has a connection from (upstream:
    /// `pkg/model/hetznermodel/loadbalancer.go`, without the PROXY protocol).
    LoadBalancer,
}

/// What tells the addresses of machines from those of load balancers.
pub enum WhoConnects {
    /// Machines alone.
    Machines,
    /// Load balancers too, whose addresses are not known. Those of the cluster's servers are, once they have been listed: they
    /// are machines', which connect by themselves, or the pods on them do.
    BehindLoadBalancer(Arc<HetznerServers>),
}

impl WhoConnects {
    /// What connects in this cloud: kOps puts port 3988 behind the API's load balancer on Hetzner Cloud.
    pub fn of(cloud: &Cloud) -> WhoConnects {
        match cloud {
            Cloud::Aws { .. } | Cloud::Gce(_) => WhoConnects::Machines,
            Cloud::Hetzner(servers) => WhoConnects::BehindLoadBalancer(servers.clone()),
        }
    }

    /// What connects from there.
    pub fn from(&self, address: IpAddr) -> Peers {
        match self {
            WhoConnects::BehindLoadBalancer(servers) if !servers.has_address(address.to_canonical()) => {
                Peers::LoadBalancer
            }
            WhoConnects::Machines | WhoConnects::BehindLoadBalancer(_) => Peers::Machines,
        }
    }
}

/// An IPv4 address, or the part of an IPv6 one that is a machine's own; and which machine a request from there claims to
/// be of, where it is to be told apart from others by that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    address: IpAddr,
    claimed: Option<u64>,
}

impl Origin {
    /// The machine of this number there, or what claims to be that.
    pub fn claiming(self, number: u64) -> Origin {
        Origin { claimed: Some(number), ..self }
    }

    /// Whether it is an address and what is claimed there, of which the same machine may have many.
    pub fn is_claim(self) -> bool {
        self.claimed.is_some()
    }
}

#[cfg(test)]
impl Origin {
    /// Where an address is from, for tests to which it is all the same in which cloud.
    pub fn of(address: IpAddr) -> Origin {
        MachinePrefix::ELSEWHERE.origin(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_one_origin_and_its_subnet_is_not() {
        for (prefix, own, other) in [
            (MachinePrefix::AWS, "fd00:1:2:3:a:ffff:1:2", "fd00:1:2:3:b::1"),
            (MachinePrefix::GCE, "fd00:1:2:3:a:0:ffff:2", "fd00:1:2:3:a:1::1"),
            (MachinePrefix::ELSEWHERE, "fd00:1:2:3:ffff::2", "fd00:1:2:4:a::1"),
        ] {
            let origin =
                |address: &str| prefix.origin(address.parse().unwrap_or(IpAddr::V4([0, 0, 0, 0].into())));
            assert_eq!(origin("fd00:1:2:3:a::1"), origin(own), "{prefix:?}");
            assert_ne!(origin("fd00:1:2:3:a::1"), origin(other), "{prefix:?}");
            assert_eq!(origin("::ffff:10.0.0.1"), origin("10.0.0.1"));
            assert_ne!(origin("10.0.0.2"), origin("10.0.0.1"));
        }
    }
}
