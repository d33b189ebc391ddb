//! The addresses that replace DNS in `/etc/hosts`.

use std::net::IpAddr;

use kops_agent_spec::BootConfig;

use super::Problems;

/// Checks that the boot config's addresses are IP addresses.
pub(super) fn resolve(boot: &BootConfig, problems: &mut Problems) {
    for (field, addresses) in [("APIServerIPs", &boot.api_server_ips), ("EtcdIPs", &boot.etcd_ips)] {
        for (index, address) in addresses.iter().enumerate() {
            if address.parse::<IpAddr>().is_err() {
                problems
                    .add(format!("{field}[{index}]"), format!("{address:?} is no IP address; correct it"));
            }
        }
    }
}
