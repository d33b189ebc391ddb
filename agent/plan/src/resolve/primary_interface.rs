//! The primary network interface of an EC2 instance whose pods get addresses of other interfaces.
//!
//! Source: `primaryInterfaceName` in nodeup/pkg/model/networking/eni_networking.go.

use kops_agent_spec::NetworkingSpec;
use kops_agent_spec::facts::Facts;
use kops_agent_spec::invalid::Invalid;

use super::Problems;
use super::basis::Basis;

/// Whether pods get addresses of the instance's additional interfaces (ENIs).
pub(super) fn pods_use_enis(networking: &NetworkingSpec) -> bool {
    networking.amazon_vpc.is_some() || networking.cilium.as_ref().is_some_and(|cilium| cilium.ipam == "eni")
}

/// The name of the primary interface. `None` if the node need not tell this interface from its other interfaces.
pub(super) fn resolve(basis: &Basis<'_>, problems: &mut Problems) -> Option<String> {
    if pods_use_enis(&basis.config.networking)
        && basis.distribution.networkd_configures_new_interfaces
        && basis.release.knows_the_primary_interface()
    {
        problems.keep("interfaces", interface_with_primary_mac(basis.facts))
    } else {
        None
    }
}

/// The interface with the primary hardware address. Virtual interfaces are ignored, because they
/// can have the hardware address of the interface below them.
fn interface_with_primary_mac(facts: &Facts) -> Result<String, Invalid> {
    let mac = facts.cloud.aws.as_ref().map_or("", |aws| aws.mac.trim());
    if mac.is_empty() {
        return Err(Invalid::new(
            "the primary network interface is not known: EC2's instance metadata gave no mac",
        ));
    }
    let bears_mac = |address: &str| address.trim().eq_ignore_ascii_case(mac);
    let mut found = facts
        .interfaces
        .iter()
        .filter(|interface| !interface.is_virtual && interface.mac.as_deref().is_some_and(bears_mac))
        .map(|interface| interface.name.clone());
    match (found.next(), found.next()) {
        (Some(name), None) => Ok(name),
        (Some(one), Some(other)) => Err(Invalid::new(format!(
            "the primary network interface is not known: {one} and {other} both have the hardware address {mac}"
        ))),
        (None, _) => Err(Invalid::new(format!(
            "the primary network interface is not known: no interface has the hardware address {mac}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_spec::facts::{AwsFacts, Interface};

    fn found(interfaces: &[(&str, &str, bool)], mac: &str) -> Result<String, Invalid> {
        let mut facts = Facts::default();
        facts.cloud.aws = Some(AwsFacts { mac: mac.into(), ..AwsFacts::default() });
        facts.interfaces = interfaces
            .iter()
            .map(|(name, mac, is_virtual)| Interface {
                name: (*name).into(),
                mac: Some((*mac).into()),
                is_virtual: *is_virtual,
                ..Interface::default()
            })
            .collect();
        interface_with_primary_mac(&facts)
    }

    #[test]
    fn the_real_interface_with_the_primary_address_is_found() {
        let interfaces = [("ens34", "02:2b:4d:6e:68:dd", false), ("ens35", "02:1c:00:1d:07:d3", false)];
        assert_eq!(found(&interfaces, "02:2B:4D:6E:68:DD").unwrap(), "ens34");
        let interfaces = [("ens5", "02:a0:ac:d3:05:3b", false), ("vlan5", "02:a0:ac:d3:05:3b", true)];
        assert_eq!(found(&interfaces, "02:a0:ac:d3:05:3b").unwrap(), "ens5");
    }

    #[test]
    fn no_interface_or_two_interfaces_are_an_error() {
        let interfaces = [("ens5", "02:a0:ac:d3:05:3b", false), ("ens6", "02:a0:ac:d3:05:3b", false)];
        assert!(found(&interfaces, "02:a0:ac:d3:05:3b").unwrap_err().to_string().contains("ens5 and ens6"));
        assert!(found(&interfaces, "02:ff:ff:ff:ff:ff").unwrap_err().to_string().contains("no interface"));
        assert!(found(&interfaces, "").unwrap_err().to_string().contains("gave no mac"));
    }
}
