//! Whom connections and requests come from, for a share to be given to each.

use std::net::{IpAddr, Ipv6Addr};

/// An IPv4 address, or the network of an IPv6 one: a machine has as many addresses there as it likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin(IpAddr);

impl Origin {
    /// Where an address is from.
    pub fn of(address: IpAddr) -> Origin {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Origin(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
            address => Origin(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_origin() {
        let origin = |address: &str| Origin::of(address.parse().unwrap_or(IpAddr::V4([0, 0, 0, 0].into())));
        assert_eq!(origin("fd00:1:2:3::1"), origin("fd00:1:2:3:ffff::2"));
        assert_ne!(origin("fd00:1:2:3::1"), origin("fd00:1:2:4::1"));
        assert_eq!(origin("::ffff:10.0.0.1"), origin("10.0.0.1"));
        assert_ne!(origin("10.0.0.2"), origin("10.0.0.1"));
    }
}
