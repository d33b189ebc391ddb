//! Downloaded programs that the loader or the kernel of this machine refuses. The run names the program, the missing part
//! and the setting, before its first change.

#![allow(clippy::unwrap_used)]

use std::fs;

use kops_agent_tests::example_store::{NODES, releases};
use kops_agent_tests::stand_ins::Releases;

use crate::downloads::installed;
use crate::example::Machine;

const CONFIGURATION: i32 = 3;
const KUBELET: &str = "/usr/local/bin/kubelet";

/// A dynamically linked program of this machine, with `old` replaced by `new` everywhere.
fn altered(old: &str, new: &str) -> Vec<u8> {
    assert_eq!(old.len(), new.len());
    let mut bytes = fs::read("/bin/true").unwrap();
    let windows = bytes.windows(old.len()).enumerate();
    let found: Vec<usize> =
        windows.filter(|(_, window)| *window == old.as_bytes()).map(|(at, _)| at).collect();
    assert!(!found.is_empty(), "/bin/true has no {old}");
    found.iter().for_each(|at| bytes[*at..*at + old.len()].copy_from_slice(new.as_bytes()));
    bytes
}

/// A program that was built with a newer glibc. Each program that is linked since glibc 2.34 needs that version.
fn of_newer_glibc() -> Vec<u8> {
    altered("GLIBC_2.34\0", "GLIBC_2.99\0")
}

fn of_other_processor() -> Vec<u8> {
    b"\x7fELF\x02\x01\x01 of another machine".to_vec()
}

/// From now on, this machine downloads `program` with these bytes.
fn publish(node: &Machine, program: &str, bytes: &[u8]) {
    let downloads = releases().stand_ins_with("arm64", program, bytes).unwrap();
    downloads.iter().for_each(|(path, content)| drop(node.downloads().publish(path, content)));
}

#[test]
fn a_program_that_does_not_start_is_refused_before_the_first_change() {
    let newer = "it needs GLIBC_2.99 of the C library, and this machine's C library is older";
    let other = "the kernel cannot run it: it was built for another processor architecture, or is no program";
    let of_kubelet = "set spec.image of the InstanceGroup to a newer distribution for the architecture of its machineType, or \
                      spec.kubernetesVersion to an older release";
    let of_containerd = "set spec.containerd.packages to the release's containerd-static-VERSION-linux-ARCH.tar.gz, or \
                         spec.containerd.version to an older release";
    let of_runc = "set spec.containerd.runc.packages to a build for this machine";
    for (program, path, bytes, why, advice) in [
        ("kubelet", KUBELET, of_newer_glibc(), newer, of_kubelet),
        ("kubelet", KUBELET, of_other_processor(), other, of_kubelet),
        ("containerd", "/usr/bin/containerd", of_newer_glibc(), newer, of_containerd),
        (
            "containerd-shim-runc-v2",
            "/usr/bin/containerd-shim-runc-v2",
            of_newer_glibc(),
            newer,
            of_containerd,
        ),
        ("runc", "/usr/sbin/runc", of_other_processor(), other, of_runc),
    ] {
        let node = Machine::of(NODES);
        publish(&node, program, &bytes);
        let refused = format!("file {path}: this download does not start on this machine: {why}; {advice}");
        node.run("converge", &[]).with(CONFIGURATION, &[&refused]);
        assert_eq!(node.files(), [""; 0], "{program}");
    }
}

/// An update of a working node brings a kubelet that does not start.
#[test]
fn a_working_node_keeps_its_kubelet_if_the_next_does_not_start() {
    let node = Machine::of(NODES);
    node.run("converge", &[]).with(0, &[]);
    let (files, kubelet) = (node.files(), installed(&node));
    node.cluster
        .edit("cluster-completed.spec", "kubernetesVersion: 1.34.2", "kubernetesVersion: 1.34.3")
        .unwrap();
    let next = Releases { kubernetes: "1.34.3".into(), ..releases() };
    for (path, content) in next.stand_ins_with("arm64", "kubelet", &of_newer_glibc()).unwrap() {
        node.downloads().publish(&path, &content);
    }
    let update = node.run("converge", &["--config-from", "cluster-spec"]);
    update.with(CONFIGURATION, &["file /usr/local/bin/kubelet: this download does not start", "GLIBC_2.99"]);
    assert_eq!(node.files(), files);
    assert_eq!(installed(&node), kubelet);
}
