//! Network interfaces in the kernel's order, which is the order of their creation. The kernel lists an interface once
//! per address.

use std::net::{Ipv4Addr, Ipv6Addr};

use kops_agent_spec::facts::Interface;
use nix::ifaddrs::InterfaceAddress;
use nix::sys::socket::SockaddrStorage;

/// An entry of `getifaddrs`: an interface and at most one of its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AddressOfInterface {
    interface: String,
    mac: Option<[u8; 6]>,
    address: Option<String>,
}

impl From<InterfaceAddress> for AddressOfInterface {
    fn from(answer: InterfaceAddress) -> AddressOfInterface {
        AddressOfInterface {
            mac: answer.address.as_ref().and_then(|address| address.as_link_addr()?.addr()),
            address: answer
                .address
                .as_ref()
                .and_then(|address| address_with_prefix(address, answer.netmask.as_ref())),
            interface: answer.interface_name,
        }
    }
}

fn address_with_prefix(address: &SockaddrStorage, netmask: Option<&SockaddrStorage>) -> Option<String> {
    if let Some(address) = address.as_sockaddr_in() {
        let mask =
            netmask.and_then(|mask| mask.as_sockaddr_in()).map_or(Ipv4Addr::BROADCAST, |mask| mask.ip());
        return Some(format!("{}/{}", address.ip(), u32::from(mask).leading_ones()));
    }
    let address = address.as_sockaddr_in6()?;
    let mask =
        netmask.and_then(|mask| mask.as_sockaddr_in6()).map_or(Ipv6Addr::from(u128::MAX), |mask| mask.ip());
    Some(format!("{}/{}", address.ip(), u128::from(mask).leading_ones()))
}

/// The interfaces in the kernel's order. The machine's own interfaces come first, because pods and network plugins create their interfaces
/// later. Callers take the first suitable interface. `is_virtual` says whether an interface has no device.
pub(super) fn collect_interfaces(
    answers: impl Iterator<Item = AddressOfInterface>,
    is_virtual: impl Fn(&str) -> bool,
) -> Vec<Interface> {
    let mut interfaces: Vec<Interface> = Vec::new();
    for answer in answers {
        let known = interfaces.iter().position(|interface| interface.name == answer.interface);
        let index = known.unwrap_or_else(|| {
            interfaces.push(Interface { name: answer.interface, ..Interface::default() });
            interfaces.len() - 1
        });
        let interface = &mut interfaces[index];
        if let Some(mac) = answer.mac.filter(|mac| mac != &[0; 6]) {
            interface.mac = Some(mac.map(|byte| format!("{byte:02x}")).join(":"));
        }
        interface.addresses.extend(answer.address);
    }
    for interface in &mut interfaces {
        interface.addresses.sort();
        interface.addresses.dedup();
        interface.is_virtual = is_virtual(&interface.name);
    }
    interfaces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(interface: &str, mac: Option<[u8; 6]>, address: Option<&str>) -> AddressOfInterface {
        AddressOfInterface { interface: interface.into(), mac, address: address.map(Into::into) }
    }

    #[test]
    fn the_entries_of_an_interface_are_merged_and_its_addresses_sorted() {
        let answers = [
            answer("lo", Some([0; 6]), None),
            answer("eth0", Some([2, 0, 0, 0, 0, 0xab]), None),
            answer("lo", None, Some("127.0.0.1/8")),
            answer("eth0", None, Some("fe80::1/64")),
            answer("eth0", None, Some("172.20.32.10/19")),
            answer("eth0", None, Some("172.20.32.10/19")),
        ];
        let eth0 = Interface {
            name: "eth0".into(),
            mac: Some("02:00:00:00:00:ab".into()),
            addresses: vec!["172.20.32.10/19".into(), "fe80::1/64".into()],
            is_virtual: false,
        };
        let lo = Interface {
            name: "lo".into(),
            mac: None,
            addresses: vec!["127.0.0.1/8".into()],
            is_virtual: true,
        };
        assert_eq!(collect_interfaces(answers.into_iter(), |name| name == "lo"), [lo, eth0]);
    }

    #[test]
    fn interfaces_of_network_plugins_come_after_the_machines_own() {
        let answers = ["lo", "ens5", "cali0", "br-pods"].map(|name| answer(name, None, None));
        let names =
            collect_interfaces(answers.into_iter(), |_| false).into_iter().map(|interface| interface.name);
        assert_eq!(names.collect::<Vec<_>>(), ["lo", "ens5", "cali0", "br-pods"]);
    }
}
