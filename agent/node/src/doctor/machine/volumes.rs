//! The desired volumes and the block devices of this machine.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use kops_agent_host::system::devices::names;
use kops_agent_plan::doctor::{Device, Seen, Unseen, Volume, Volumes};
use kops_agent_plan::resource::{DesiredState, Resource};

/// The volumes in the desired state, and the devices of this machine. Fails if there are volumes and `root` is not
/// `/`, because only `/` has devices.
pub(super) fn volumes(root: &Path, desired: &DesiredState) -> Seen<Volumes> {
    let mounts = desired.iter().filter_map(|(_, resource)| match resource {
        Resource::Mount(mount) => Some(mount),
        _ => None,
    });
    let mounts: Vec<_> = mounts.collect();
    if mounts.is_empty() {
        return Ok(Volumes::default());
    }
    if root != Path::new("/") {
        return Err(Unseen::new("a root other than / has no devices"));
    }
    let is_device =
        |path: &str| fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device());
    let wanted = mounts.into_iter().map(|mount| Volume {
        device: mount.device.clone(),
        path: mount.path.clone(),
        is_there: is_device(&mount.device),
    });
    Ok(Volumes {
        wanted: wanted.collect(),
        devices: devices(Path::new("/sys/class/block"), Path::new("/dev/disk/by-id")),
    })
}

/// The disks and partitions, each with the links to it.
fn devices(block: &Path, links: &Path) -> Vec<Device> {
    let entries: Vec<_> = fs::read_dir(links).into_iter().flatten().flatten().collect();
    let leads_to = |link: &Path, device: &str| {
        fs::read_link(link).is_ok_and(|target| target.file_name() == Path::new(device).file_name())
    };
    let device = |path: String| {
        let of_device = entries.iter().filter(|entry| leads_to(&entry.path(), &path));
        let mut links: Vec<String> =
            of_device.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        links.sort();
        Device { path, links }
    };
    names(block).into_iter().map(device).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn devices_have_the_links_that_lead_to_them() {
        let folder = tempfile::tempdir().unwrap();
        let (block, links) = (folder.path().join("block"), folder.path().join("by-id"));
        for name in ["nvme0n1", "nvme1n1", "loop0"] {
            fs::create_dir_all(block.join(name)).unwrap();
        }
        fs::create_dir(&links).unwrap();
        let volume = "nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0";
        symlink("../../nvme1n1", links.join(volume)).unwrap();
        let device = |path: &str, links: &[&str]| Device {
            path: path.to_owned(),
            links: links.iter().map(|link| (*link).to_owned()).collect(),
        };
        assert_eq!(devices(&block, &links), [device("/dev/nvme0n1", &[]), device("/dev/nvme1n1", &[volume])]);
        assert_eq!(devices(&block, Path::new("/nowhere")).len(), 2);
    }
}
