//! The EC2 metadata of a test machine, and files that are laid over its root.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use kops_agent_tests::ec2::interface_of;
use kops_agent_tests::example_store::REGION;
use kops_agent_tests::imds::{Instance, item_of_interface, mac_of};

/// The hostname of the instance with this address and id. In an IPv6-only subnet, the hostname is the instance id.
///
/// Source: the EC2 User Guide, "Amazon EC2 instance hostname types".
pub fn hostname(address: IpAddr, id: &str) -> String {
    match address {
        IpAddr::V4(address) => format!("ip-{}", address.to_string().replace('.', "-")),
        IpAddr::V6(_) => id.to_owned(),
    }
}

/// The responses of the metadata service to this instance, by item path.
pub fn metadata(address: IpAddr, id: &str) -> Instance {
    let (family, mac) = (if address.is_ipv6() { "ipv6" } else { "local-ipv4" }, mac_of(address));
    let items = [
        ("instance-id", id.to_owned()),
        ("instance-type", "m6i.large".to_owned()),
        ("ami-id", "ami-0f0e0d0c0b0a09080".to_owned()),
        ("placement/region", REGION.to_owned()),
        ("placement/availability-zone", format!("{REGION}a")),
        (family, address.to_string()),
        ("local-hostname", format!("{}.{REGION}.compute.internal", hostname(address, id))),
        (&item_of_interface(&mac, "interface-id"), interface_of(id)),
        ("mac", mac.clone()),
    ];
    items.map(|(item, answer)| (item.to_owned(), answer)).into()
}

/// Writes a file into `files`, the folder that is the upper layer of a machine's root file system.
pub fn write(files: &Path, path: &str, text: &str) {
    let path = files.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Writes settings for chrony and kubelet, because a machine shares the host's clock and cgroups.
pub fn share_host(files: &Path) {
    // `-x`: chrony must not set the clock, because it is the host's.
    write(files, "/etc/default/chrony", "DAEMON_OPTS=\"-F 1 -x\"\n");
    // With this flag, kubelet also starts on a host with cgroup v1.
    write(
        files,
        "/etc/systemd/system/kubelet.service.d/10-cgroups.conf",
        "[Service]\nExecStart=\nExecStart=/usr/local/bin/kubelet \"$DAEMON_ARGS\" --fail-cgroupv1=false\n",
    );
}
