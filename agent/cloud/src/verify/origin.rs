//! Origins of connections and requests, each of which gets a share.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use kops_agent_plan::machine_id::MachineId;

/// How many leading bits of an IPv6 address tell one machine from another: behind them a machine has as many addresses
/// as it likes, before them it has none but what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachinePrefix(u32);

impl MachinePrefix {
    /// The network that most clouds give to one machine.
    pub const NETWORK: MachinePrefix = MachinePrefix::of_bits(64);

    /// So many bits; all are 128.
    pub const fn of_bits(bits: u32) -> MachinePrefix {
        MachinePrefix(bits)
    }

    /// Where an address is from.
    pub fn origin(self, address: IpAddr) -> Origin {
        let own = match address.to_canonical() {
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(u128::BITS.saturating_sub(self.0)).unwrap_or_default();
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
    /// A load balancer connects for them. It speaks TCP and says nothing of where it has a connection from.
    LoadBalancer,
}

/// Whether machines connect by themselves, or a load balancer does for them.
#[derive(Clone)]
pub enum LoadBalancing {
    /// By themselves.
    None,
    /// A load balancer does, whose addresses are not known. The machines' own are, once they have been listed: they connect
    /// from there by themselves, or the pods on them do.
    Of(Arc<dyn OwnAddresses>),
}

/// The addresses of a cluster's machines.
pub trait OwnAddresses: Send + Sync {
    /// Whether a machine had this address when they were last listed. No request is made.
    fn has_address(&self, address: IpAddr) -> bool;
}

impl LoadBalancing {
    /// What connects from an address.
    pub fn peers_at(&self, address: IpAddr) -> Peers {
        match self {
            LoadBalancing::Of(machines) if !machines.has_address(address.to_canonical()) => {
                Peers::LoadBalancer
            }
            LoadBalancing::None | LoadBalancing::Of(_) => Peers::Machines,
        }
    }
}

/// An IPv4 address, or the part of an IPv6 one that is a machine's own; and which machine a request from there claims to
/// be of, where it is to be told apart from others by that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    address: IpAddr,
    claimed: Option<MachineId>,
}

impl Origin {
    /// What claims to be the machine of this id, wherever it is: of a pod's network a machine has as many addresses as it likes.
    pub fn claiming(self, id: MachineId) -> Origin {
        Origin { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), claimed: Some(id) }
    }

    /// The machine of this id at an address that is its own.
    pub fn claiming_at_its_own(self, id: MachineId) -> Origin {
        Origin { claimed: Some(id), ..self }
    }

    /// Whether it is this very address, where a machine has no more than single ones.
    pub fn is_at(self, address: IpAddr) -> bool {
        self.address == address.to_canonical()
    }

    /// Whether it is an address and what is claimed there, of which the same machine may have many.
    pub fn is_claim(self) -> bool {
        self.claimed.is_some()
    }
}

#[cfg(any(test, feature = "testing"))]
impl Origin {
    /// Where an address is from, for tests to which it is all the same in which cloud.
    pub fn of(address: IpAddr) -> Origin {
        MachinePrefix::NETWORK.origin(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_one_origin_and_its_subnet_is_not() {
        for (prefix, own, other) in [
            (MachinePrefix::of_bits(80), "fd00:1:2:3:a:ffff:1:2", "fd00:1:2:3:b::1"),
            (MachinePrefix::of_bits(96), "fd00:1:2:3:a:0:ffff:2", "fd00:1:2:3:a:1::1"),
            (MachinePrefix::NETWORK, "fd00:1:2:3:ffff::2", "fd00:1:2:4:a::1"),
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
