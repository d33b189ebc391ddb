//! Checks the block devices that the spec's volumes name.

use super::finding::{Finding, Seen};

const CHECK: &str = "volumes";

/// The volumes that a node mounts, and the disks of the machine.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    pub wanted: Vec<Volume>,
    /// The disks and partitions of this machine.
    pub devices: Vec<Device>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub device: String,
    /// The mount point.
    pub path: String,
    /// Whether the block device exists now.
    pub is_there: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The device's path, like `/dev/nvme1n1`.
    pub path: String,
    /// The links in `/dev/disk/by-id` to this device. Amazon's links contain the volume's id.
    pub links: Vec<String>,
}

pub(super) fn findings(volumes: &Seen<Volumes>) -> Vec<Finding> {
    match volumes {
        Ok(volumes) => volumes.wanted.iter().map(|volume| of_volume(volume, &volumes.devices)).collect(),
        Err(why) => vec![Finding::unknown(
            CHECK,
            format!("the block devices are unknown: {why}"),
            "check `lsblk` and /dev/disk/by-id",
        )],
    }
}

fn of_volume(volume: &Volume, devices: &[Device]) -> Finding {
    let Volume { device, path, is_there } = volume;
    if *is_there {
        return Finding::ok(CHECK, format!("{device}, the device of {path}, exists"));
    }
    let described = devices.iter().map(|Device { path, links }| match links.is_empty() {
        true => path.clone(),
        false => format!("{path} ({})", links.join(", ")),
    });
    let described: Vec<String> = described.collect();
    let there = if described.is_empty() { "no block devices".to_owned() } else { described.join(", ") };
    let has_ids = devices.iter().any(|device| !device.links.is_empty());
    let nvme = devices.iter().any(|device| device.path.contains("nvme"));
    Finding::problem(
        CHECK,
        format!("{device}, the device of {path}, is missing; this machine has {there}"),
        match (nvme, has_ids) {
            (true, true) => {
                "attach the volume; EBS volumes are NVMe devices here, and their numbers change: use its link in volumeMounts, such as \
                 /dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0"
            }
            (_, true) => {
                "attach the volume, or use its link in /dev/disk/by-id in volumeMounts, because the link does not change"
            }
            _ => "attach the volume, or use its name on this machine in volumeMounts",
        },
    )
}
