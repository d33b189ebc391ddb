//! The addresses that stand in for DNS in `/etc/hosts`.

use std::net::IpAddr;

use kops_agent_spec::BootConfig;

use super::Problems;

/// Whether what the boot config calls addresses are some.
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
