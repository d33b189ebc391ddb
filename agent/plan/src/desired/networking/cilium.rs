//! Cilium: mounts for its eBPF programs and cgroups, and network settings that keep Cilium's routes. If
//! Cilium's state is in etcd, also a client certificate.
//!
//! Source: nodeup/pkg/model/networking/cilium.go.

use crate::desired::certificates;
use crate::desired::unit_file::UnitFile;
use crate::resolve::{CILIUM_ETCD_CLIENTS_CA, NodeConfig};
use crate::resource::{CertificateType, Content, DesiredState, File, Mode, Unit};

use super::eni_networking;

const ETCD_CLIENT: &str = "etcd-client-cilium";
const ETCD_DIRECTORY: &str = "/etc/kubernetes/pki/cilium";

/// Adds Cilium's resources. The certificate stays as long as Cilium's etcd cluster exists, even during a
/// migration of the cluster to another network plugin.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if node.config.use_cilium_etcd {
        add_etcd_certificate(node, state);
    }
    if node.config.networking.cilium.is_none() {
        return;
    }
    // If systemd mounts a path by itself, systemd rejects a unit for that path.
    if !node.facts.bpf_mounted_by_systemd {
        state.add(mount("sys-fs-bpf.mount", "Cilium BPF mounts", "bpffs", "/sys/fs/bpf", "bpf"));
    }
    let cgroup2 = mount(
        "run-cilium-cgroupv2.mount",
        "Cilium Cgroup2 mounts",
        "cgroup2",
        "/run/cilium/cgroupv2",
        "cgroup2",
    );
    state.add(cgroup2);
    eni_networking::keep_foreign_routes(node, state);
    eni_networking::disable_cloud_init_hotplug(node, state);
    if node.pods_use_enis() {
        eni_networking::mask_ec2_net_utils(node, state);
        eni_networking::keep_mac_addresses(node, state);
        eni_networking::leave_secondary_interfaces(node, state);
    }
}

fn mount(name: &str, description: &str, what: &str, path: &str, filesystem: &str) -> Unit {
    let unit = UnitFile::default()
        .set("Unit", "Description", description)
        .set("Unit", "Documentation", "http://docs.cilium.io/")
        .set("Unit", "DefaultDependencies", "no")
        .set("Unit", "Before", "local-fs.target umount.target kubelet.service")
        .set("Mount", "What", what)
        .set("Mount", "Where", path)
        .set("Mount", "Type", filesystem)
        .set("Install", "WantedBy", "multi-user.target");
    Unit::new(name, unit.render())
}

fn add_etcd_certificate(node: &NodeConfig, state: &mut DesiredState) {
    state.add(
        File::text(format!("{ETCD_DIRECTORY}/etcd-ca.crt"), node.ca(CILIUM_ETCD_CLIENTS_CA))
            .mode(Mode::PRIVATE),
    );
    let certificate = certificates::of_every_node(
        node,
        ETCD_CLIENT,
        CILIUM_ETCD_CLIENTS_CA,
        CertificateType::Client,
        certificates::user("cilium"),
        Vec::new(),
    );
    if node.has_api_server() {
        certificates::add_with_files(state, certificate, ETCD_DIRECTORY, ETCD_CLIENT, None, "root");
    } else {
        state.add(certificate);
        let path = |suffix: &str| format!("{ETCD_DIRECTORY}/{ETCD_CLIENT}.{suffix}");
        state.add(File::new(path("crt"), Content::Certificate(ETCD_CLIENT.into())));
        state.add(File::new(path("key"), Content::PrivateKey(ETCD_CLIENT.into())).mode(Mode(0o400)));
    }
}
