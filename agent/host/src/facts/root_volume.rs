//! The size of the disk that has the root file system.

use std::fs;
use std::path::Path;

use crate::system::mounts::device_of_root;

/// The unit of `size` in sysfs, in bytes. It does not depend on the disk's own sector size (kernel:
/// `Documentation/ABI/stable/sysfs-block`).
const SECTOR: u64 = 512;
const GIB: u64 = 1 << 30;

/// The size of the disk of the root file system, in GiB, on the machine whose files are below `root`. `None` if the file system is not on
/// exactly one disk (LVM, dm-verity, btrfs, overlay). Also `None` if the size is not a whole number of GiB, because the disk is then not a
/// cloud's volume.
pub fn root_volume_gib(root: &Path) -> Option<u32> {
    let mounts = fs::read(root.join("proc/self/mountinfo")).ok()?;
    let device = device_of_root(&mounts)?;
    let device = fs::canonicalize(root.join("sys/dev/block").join(device)).ok()?;
    let is_partition = device.join("partition").exists();
    let disk = if is_partition { device.parent()? } else { &device };
    if ["dm", "md", "loop"].iter().any(|kind| disk.join(kind).exists()) {
        return None;
    }
    let sectors: u64 = fs::read_to_string(disk.join("size")).ok()?.trim().parse().ok()?;
    let bytes = sectors.checked_mul(SECTOR)?;
    (bytes > 0 && bytes.is_multiple_of(GIB)).then(|| u32::try_from(bytes / GIB).ok())?
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::symlink;

    use super::*;

    const MOUNTS: &str = "22 27 0:21 / /proc rw - proc proc rw\n27 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n";

    /// A machine whose root file system is on a partition of a disk with this `size`.
    fn machine(mounts: &str, size: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let path = |path: &str| root.path().join(path);
        for folder in ["proc/self", "sys/dev/block", "sys/devices/nvme0n1/nvme0n1p1", "sys/devices/dm-0/dm"] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        fs::write(path("proc/self/mountinfo"), mounts).unwrap();
        fs::write(path("sys/devices/nvme0n1/size"), size).unwrap();
        fs::write(path("sys/devices/nvme0n1/nvme0n1p1/size"), "1\n").unwrap();
        fs::write(path("sys/devices/nvme0n1/nvme0n1p1/partition"), "1\n").unwrap();
        fs::write(path("sys/devices/dm-0/size"), size).unwrap();
        symlink("../../devices/nvme0n1/nvme0n1p1", path("sys/dev/block/259:1")).unwrap();
        symlink("../../devices/nvme0n1", path("sys/dev/block/259:0")).unwrap();
        symlink("../../devices/dm-0", path("sys/dev/block/253:0")).unwrap();
        root
    }

    #[test]
    fn the_size_is_that_of_the_disk_and_not_of_the_partition() {
        let size = |mounts: &str, size: &str| root_volume_gib(machine(mounts, size).path());
        // 64 GiB.
        assert_eq!(size(MOUNTS, "134217728\n"), Some(64));
        assert_eq!(size(&MOUNTS.replace("259:1", "259:0"), "134217728\n"), Some(64));
        assert_eq!(size(MOUNTS, "134217729\n"), None, "no volume of a cloud has this size");
        assert_eq!(size(MOUNTS, "0\n"), None);
        assert_eq!(
            size(&MOUNTS.replace("259:1", "253:0"), "134217728\n"),
            None,
            "it may be on several disks"
        );
        assert_eq!(size(&MOUNTS.replace("259:1", "0:42"), "134217728\n"), None);
        assert_eq!(root_volume_gib(Path::new("/nowhere")), None);
    }
}
