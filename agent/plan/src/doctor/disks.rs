//! Free space on the file systems that a node writes to.

use super::finding::{Finding, Seen};

const CHECK: &str = "disk";

/// If fewer bytes than this are free, every program that writes fails.
const NOTHING: u64 = 64 << 20;
/// The percentages of free space and free inodes below which kubelet evicts pods and accepts no new pods (`evictionHard` in the defaults of
/// kubelet and kOps: `nodefs.available<10%`, `nodefs.inodesFree<5%`).
pub(super) const EVICTED_BELOW: u64 = 10;
pub(super) const INODES_EVICTED_BELOW: u64 = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The first directory on this file system to which the node writes.
    pub path: String,
    /// Bytes that root can still write.
    pub free: u64,
    pub total: u64,
    /// Free inodes. If the file system does not count inodes, like btrfs, both inode counts are 0.
    pub free_inodes: u64,
    pub inodes: u64,
    pub is_read_only: bool,
    /// Bytes that must still be downloaded to this file system. Downloads of unknown size are left out.
    pub needed: u64,
}

pub(super) fn findings(disks: &Seen<Vec<Disk>>) -> Vec<Finding> {
    match disks {
        Ok(disks) => disks.iter().map(finding).collect(),
        Err(why) => vec![Finding::unknown(
            CHECK,
            format!("the free disk space is unknown: {why}"),
            "check with `df -h`",
        )],
    }
}

fn finding(disk: &Disk) -> Finding {
    let Disk { path, free, total, free_inodes, inodes, is_read_only, needed } = disk;
    if *is_read_only {
        let what = format!("the file system of {path} is mounted read-only, but the node writes to it");
        return Finding::problem(
            CHECK,
            what,
            format!("mount it for writing: `mount -o remount,rw {path}`; look for errors with `dmesg`"),
        );
    }
    let free_some = format!("free some space on the file system of {path}, or make it larger");
    if free < needed || *free < NOTHING {
        let needs = if *needed > 0 {
            format!(", but {} must be downloaded to it", megabytes(*needed))
        } else {
            String::new()
        };
        return Finding::problem(CHECK, format!("{path} has {} free{needs}", megabytes(*free)), free_some);
    }
    if *inodes > 0 && *free_inodes == 0 {
        let what = format!("{path} has no free inodes: no file can be created on it, even with free space");
        return Finding::problem(
            CHECK,
            what,
            format!("remove unneeded files; `du --inodes -d 2 {path}` finds folders with many files"),
        );
    }
    if percent(*free, *total) < EVICTED_BELOW {
        let what = format!(
            "{path} has {} free, {} %: kubelet evicts pods below {EVICTED_BELOW} %",
            megabytes(*free),
            percent(*free, *total)
        );
        return Finding::warning(CHECK, what, free_some);
    }
    if *inodes > 0 && percent(*free_inodes, *inodes) < INODES_EVICTED_BELOW {
        let what = format!(
            "{path} has {} % of its inodes free: kubelet evicts pods below {INODES_EVICTED_BELOW} %",
            percent(*free_inodes, *inodes)
        );
        return Finding::warning(
            CHECK,
            what,
            format!("remove unneeded files; `du --inodes -d 2 {path}` finds folders with many files"),
        );
    }
    Finding::ok(CHECK, format!("{path} has {} free", megabytes(*free)))
}

pub(super) fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or(100)
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes / 1_000_000)
}
