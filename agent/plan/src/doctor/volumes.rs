//! The block devices that the spec's volumes name.

use super::finding::{Finding, Seen};

const CHECK: &str = "volumes";

/// The volumes that a node is to mount, and the disks that the machine has.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    /// What is to be mounted.
    pub wanted: Vec<Volume>,
    /// The disks and partitions of this machine.
    pub devices: Vec<Device>,
}

/// A volume that is to be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The device, as the spec names it.
    pub device: String,
    /// Where it is to be mounted.
    pub path: String,
    /// Whether there is such a block device now.
    pub is_there: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `/dev/nvme1n1`.
    pub path: String,
    /// The links of `/dev/disk/by-id` that lead to it; Amazon's have the volume's id.
    pub links: Vec<String>,
}

pub(super) fn findings(volumes: &Seen<Volumes>) -> Vec<Finding> {
    match volumes {
        Ok(volumes) => volumes.wanted.iter().map(|volume| of_volume(volume, &volumes.devices)).collect(),
        Err(why) => vec![Finding::unknown(
            CHECK,
            format!("which block devices there are is not known: {why}"),
            "look with `lsblk`, and at /dev/disk/by-id",
        )],
    }
}

fn of_volume(volume: &Volume, devices: &[Device]) -> Finding {
    let Volume { device, path, is_there } = volume;
    if *is_there {
        return Finding::ok(CHECK, format!("{device}, which {path} is to be mounted from, is there"));
    }
    let described = devices.iter().map(|Device { path, links }| match links.is_empty() {
        true => path.clone(),
        false => format!("{path} ({})", links.join(", ")),
    });
    let described: Vec<String> = described.collect();
    let there = if described.is_empty() { "none".to_owned() } else { described.join(", ") };
    let has_ids = devices.iter().any(|device| !device.links.is_empty());
    let nvme = devices.iter().any(|device| device.path.contains("nvme"));
    Finding::problem(
        CHECK,
        format!("{device}, which {path} is to be mounted from, is not there; this machine has {there}"),
        match (nvme, has_ids) {
            (true, true) => {
                "attach the volume; EBS volumes are NVMe devices here, whose numbers change: name it in volumeMounts by its link, as \
                 /dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0"
            }
            (_, true) => {
                "attach the volume, or name it in volumeMounts by its link in /dev/disk/by-id, which stays the same"
            }
            _ => "attach the volume, or give volumeMounts the name that it has here",
        },
    )
}
