//! The origins of connections and requests. Each origin gets a share of the capacity.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use kops_agent_cluster::machine_id::MachineId;

/// The number of leading bits of an IPv6 address that identify a machine. The cloud assigns these bits. A machine can choose
/// the bits after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachinePrefix(u32);

impl MachinePrefix {
    /// The /64 network that most clouds give to one machine.
    pub const NETWORK: MachinePrefix = MachinePrefix::of_bits(64);

    /// The first `bits` bits of an IPv6 address. With 128 bits, the prefix is the whole address.
    pub const fn of_bits(bits: u32) -> MachinePrefix {
        MachinePrefix(bits)
    }

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

/// Whether an address belongs to one machine, or to a load balancer that all machines share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Each machine connects from an address of its own.
    Machines,
    /// A load balancer connects for the machines. It forwards TCP, and does not pass on the source address.
    LoadBalancer,
}

/// Whether machines connect directly, or through a load balancer.
#[derive(Clone)]
pub enum LoadBalancing {
    /// Machines connect directly.
    None,
    /// Machines may connect through a load balancer, whose addresses are not known. A request from a listed machine's address comes
    /// directly from this machine or its pods. A request from any other address is treated as coming from the load balancer.
    Of(Arc<dyn OwnAddresses>),
}

/// The addresses of a cluster's machines.
pub trait OwnAddresses: Send + Sync {
    /// Whether a machine had this address when the machines were last listed. Makes no request.
    fn has_address(&self, address: IpAddr) -> bool;
}

impl LoadBalancing {
    /// Whether an address belongs to a machine, or to a load balancer.
    pub fn peers_at(&self, address: IpAddr) -> Peers {
        match self {
            LoadBalancing::Of(machines) if !machines.has_address(address.to_canonical()) => {
                Peers::LoadBalancer
            }
            LoadBalancing::None | LoadBalancing::Of(_) => Peers::Machines,
        }
    }
}

/// The source of a request: an IPv4 address, or the part of an IPv6 address that identifies a machine. An origin may also contain the
/// claimed machine, which is the machine that the sender claims to be. Then requests from one address have different origins if they claim
/// different machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    address: IpAddr,
    claimed: Option<MachineId>,
}

impl Origin {
    /// The origin of all requests that claim to be the machine with this id, from any address. In a pod network, a machine can use any
    /// number of addresses, so the address does not count.
    pub fn claiming(self, id: MachineId) -> Origin {
        Origin { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), claimed: Some(id) }
    }

    /// The origin of requests from this address that claim to be the machine with this id. The address must be the machine's own.
    pub fn claiming_at_its_own(self, id: MachineId) -> Origin {
        Origin { claimed: Some(id), ..self }
    }

    /// Whether the origin is exactly this address. Use this only for clouds that give a machine single addresses, not IPv6 prefixes.
    pub fn is_at(self, address: IpAddr) -> bool {
        self.address == address.to_canonical()
    }

    /// Whether the origin contains the id of the machine that the request claims to come from. One machine may make requests with many
    /// such origins, because it can claim any id.
    pub fn is_claim(self) -> bool {
        self.claimed.is_some()
    }
}

#[cfg(any(test, feature = "testing"))]
impl Origin {
    /// The origin of an address, for tests that do not depend on a cloud.
    pub fn from_address(address: IpAddr) -> Origin {
        MachinePrefix::NETWORK.origin(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_a_machine_are_one_origin_but_its_subnet_is_not() {
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
