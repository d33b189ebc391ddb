//! What EC2 tells a machine of itself, and what an image has for the machines of tests.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use kops_agent_tests::example_store::REGION;
use kops_agent_tests::imds::Instance;

/// The hostname of the machine with this address.
pub fn hostname(address: Ipv4Addr) -> String {
    format!("ip-{}", address.to_string().replace('.', "-"))
}

/// What the instance is told by its metadata service.
pub fn metadata(address: Ipv4Addr, id: &str) -> Instance {
    let [a, b, c, d] = address.octets();
    let items = [
        ("instance-id", id.to_owned()),
        ("instance-type", "m6i.large".to_owned()),
        ("placement/region", REGION.to_owned()),
        ("placement/availability-zone", format!("{REGION}a")),
        ("local-ipv4", address.to_string()),
        ("local-hostname", format!("{}.{REGION}.compute.internal", hostname(address))),
        // As tests/machines/net gives it.
        ("mac", format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")),
    ];
    items.map(|(item, answer)| (item.to_owned(), answer)).into()
}

/// Writes a file of the folder that is laid over a machine's root.
pub fn write(files: &Path, path: &str, text: &str) {
    let path = files.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Lays out what machines need that share a host's clock and its cgroups.
pub fn share_host(files: &Path) {
    // The clock is the host's: chrony runs, and leaves it alone.
    write(files, "/etc/default/chrony", "DAEMON_OPTS=\"-F 1 -x\"\n");
    // kubelet does not start on the cgroups of version 1, which the host may have, unless it is told to.
    write(
        files,
        "/etc/systemd/system/kubelet.service.d/10-cgroups.conf",
        "[Service]\nExecStart=\nExecStart=/usr/local/bin/kubelet \"$DAEMON_ARGS\" --fail-cgroupv1=false\n",
    );
}
