//! Decides the early warnings about a machine. An unknown state is reported as unknown, never as a problem or as ok.

use kops_agent_cluster::fleet::{
    CERTIFICATE_EXPIRES_SOON, CLOCK_UNSYNCHRONIZED, DISK_PRESSURE_SOON, EarlyWarning, FEW_DAYS,
    FirstCertificate, WarningReason,
};
use kops_agent_spec::timestamp;
use time::{Duration, OffsetDateTime};

use super::clock::SET;
use super::disks::{Disk, EVICTED_BELOW, INODES_EVICTED_BELOW, percent};
use super::finding::Seen;

/// The percentage of free space below which a disk is almost full. By default, kubelet then removes unused images
/// (`imageGCHighThresholdPercent: 85`). If the disk stays almost full, other files than unused images fill it.
const LOW_SPACE_BELOW: u64 = 15;
/// The percentage of free inodes below which a disk is almost full.
const LOW_INODES_BELOW: u64 = 10;
/// The path of a disk that has only logs. A disk that also has data of kubelet or containerd has the path of that data.
pub const LOGS: &str = "/var/log";

/// Whether a disk is almost full. kubelet sets its own condition `DiskPressure` only when it evicts pods.
pub fn disk_pressure_soon(disks: &Seen<Vec<Disk>>) -> EarlyWarning {
    let warning = |reason, message: &str| EarlyWarning::new(DISK_PRESSURE_SOON, reason, message);
    let disks = match disks {
        Ok(disks) => disks,
        Err(why) => {
            return warning(WarningReason::NotObserved, &format!("the free disk space is unknown: {why}"));
        }
    };
    let shortages: Vec<(WarningReason, String)> = disks.iter().flat_map(shortages).collect();
    if let Some((reason, _)) = shortages.first() {
        let messages: Vec<&str> = shortages.iter().map(|(_, message)| message.as_str()).collect();
        return warning(*reason, &messages.join("; "));
    }
    match disks.iter().min_by_key(|disk| percent(disk.free, disk.total)) {
        Some(Disk { path, free, total, .. }) => warning(
            WarningReason::DiskSpaceSufficient,
            &format!("the file system of {path} is the fullest, with {} % free", percent(*free, *total)),
        ),
        None => warning(WarningReason::NotObserved, "no file system of this node was found"),
    }
}

/// The kinds of space that are low on this disk, each with a message.
fn shortages(disk: &Disk) -> Vec<(WarningReason, String)> {
    let Disk { path, free, total, free_inodes, inodes, .. } = disk;
    let mut shortages = Vec::new();
    // kubelet does not observe a file system that has only logs.
    let evicts = |below: u64| match path.as_str() {
        LOGS => String::new(),
        _ => format!("; kubelet evicts pods below {below} % by default"),
    };
    let space = percent(*free, *total);
    if space < LOW_SPACE_BELOW {
        let message = format!("the file system of {path} has {space} % free{}", evicts(EVICTED_BELOW));
        shortages.push((WarningReason::DiskSpaceLow, message));
    }
    // Some file systems, like btrfs, do not count inodes.
    let share_of_inodes = percent(*free_inodes, *inodes);
    if *inodes > 0 && share_of_inodes < LOW_INODES_BELOW {
        let evicts = evicts(INODES_EVICTED_BELOW);
        let message = format!("the file system of {path} has {share_of_inodes} % of its inodes free{evicts}");
        shortages.push((WarningReason::InodesLow, message));
    }
    shortages
}

/// Whether no time service synchronizes the clock. Without a time service, the clock drifts until servers reject the node's signatures and
/// certificates.
pub fn clock_unsynchronized(is_synchronized: &Seen<bool>) -> EarlyWarning {
    let warning = |reason, message: &str| EarlyWarning::new(CLOCK_UNSYNCHRONIZED, reason, message);
    match is_synchronized {
        Ok(true) => warning(WarningReason::ClockSynchronized, "a time service synchronizes the clock"),
        Ok(false) => {
            let message = format!("no time service synchronizes the clock; {SET}");
            warning(WarningReason::ClockNotSynchronized, &message)
        }
        Err(why) => {
            let message = format!("the synchronization of the clock is unknown: {why}");
            warning(WarningReason::NotObserved, &message)
        }
    }
}

/// Whether a certificate of the node expires soon, although kops-agent renews certificates long before they expire. `first` is the
/// certificate that expires first. `unreadable` is the file of a certificate whose expiry is unknown.
pub fn certificate_expires_soon(
    first: Option<&FirstCertificate>,
    unreadable: Option<&str>,
    now: OffsetDateTime,
) -> EarlyWarning {
    let warning = |reason, message: &str| EarlyWarning::new(CERTIFICATE_EXPIRES_SOON, reason, message);
    let named = |first: &FirstCertificate, ends: &str| {
        format!("the certificate {} {ends} {}", first.name, timestamp(first.expires))
    };
    match (first, unreadable) {
        (Some(first), _) if first.expires <= now => {
            warning(WarningReason::CertificateExpired, &named(first, "expired at"))
        }
        (Some(first), _) if first.expires - now < Duration::days(FEW_DAYS) => {
            let message = format!(
                "{}; its renewal has failed, or kops-agent-verify.timer is not enabled on this node",
                named(first, "expires at")
            );
            warning(WarningReason::CertificateNotRenewed, &message)
        }
        (_, Some(path)) => {
            let message = format!(
                "the expiry of {path} is unknown: the file is missing or has no readable certificate"
            );
            warning(WarningReason::NotObserved, &message)
        }
        (Some(first), None) => {
            let message = format!("{}; all other certificates expire later", named(first, "expires at"));
            warning(WarningReason::CertificatesValid, &message)
        }
        (None, None) => {
            warning(WarningReason::NotObserved, "no run of kops-agent has left a certificate on this node")
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::finding::Unseen;
    use super::*;

    fn disk(path: &str, free: u64, free_inodes: u64) -> Disk {
        let path = path.into();
        Disk { path, free, total: 100, free_inodes, inodes: 100, is_read_only: false, needed: 0 }
    }

    #[track_caller]
    fn assert_warning(warning: &EarlyWarning, reason: WarningReason, said: &str) {
        assert_eq!(warning.reason, reason, "{warning:?}");
        assert!(warning.message.contains(said), "{warning:?}");
    }

    #[test]
    fn a_disk_is_almost_full_before_kubelet_evicts() {
        let of = |disks: &[(u64, u64)]| {
            let disks = disks.iter().enumerate();
            let disks = disks.map(|(at, (free, inodes))| disk(&format!("/d{at}"), *free, *inodes)).collect();
            disk_pressure_soon(&Ok(disks))
        };
        let enough = of(&[(90, 90), (15, 10)]);
        assert_eq!(enough.condition, "KopsAgentDiskPressureSoon");
        assert_warning(&enough, WarningReason::DiskSpaceSufficient, "/d1 is the fullest, with 15 % free");
        assert_warning(&of(&[(90, 90), (14, 90)]), WarningReason::DiskSpaceLow, "/d1 has 14 % free");
        assert_warning(&of(&[(15, 9)]), WarningReason::InodesLow, "/d0 has 9 % of its inodes free");
        let both = of(&[(50, 9), (0, 0)]);
        assert_warning(&both, WarningReason::InodesLow, "/d0 has 9 % of its inodes free");
        assert_warning(&both, WarningReason::InodesLow, "/d1 has 0 % free");
        let logs = disk_pressure_soon(&Ok(vec![disk("/var/log", 9, 90)]));
        assert_warning(&logs, WarningReason::DiskSpaceLow, "/var/log has 9 % free");
        assert!(!logs.message.contains("evicts"), "{logs:?}");
        let btrfs = Disk { inodes: 0, ..disk("/", 50, 0) };
        assert_warning(&disk_pressure_soon(&Ok(vec![btrfs])), WarningReason::DiskSpaceSufficient, "50 %");
    }

    #[test]
    fn an_unknown_state_is_no_problem_and_not_ok() {
        let unseen = || Unseen::new("hung");
        for (warning, said) in [
            (disk_pressure_soon(&Err(unseen())), "unknown: hung"),
            (disk_pressure_soon(&Ok(vec![])), "no file system"),
            (clock_unsynchronized(&Err(unseen())), "unknown: hung"),
            (certificate_expires_soon(None, None, OffsetDateTime::UNIX_EPOCH), "no run of kops-agent"),
        ] {
            assert_warning(&warning, WarningReason::NotObserved, said);
            assert_eq!(warning.reason.status(), "Unknown");
        }
    }

    #[test]
    fn a_clock_without_a_time_service_is_a_problem() {
        let problem = clock_unsynchronized(&Ok(false));
        assert_eq!(problem.condition, "KopsAgentClockUnsynchronized");
        assert_warning(&problem, WarningReason::ClockNotSynchronized, "timedatectl set-ntp true");
        let ok = clock_unsynchronized(&Ok(true));
        assert_warning(&ok, WarningReason::ClockSynchronized, "synchronizes the clock");
    }

    #[test]
    fn a_certificate_in_its_last_week_was_not_renewed() {
        const NOW: i64 = 1_700_000_000;
        let of = |left: i64, unreadable| {
            let first = FirstCertificate::from_expiry("/var/lib/kubelet/kubeconfig", NOW + left).unwrap();
            let now = OffsetDateTime::from_unix_timestamp(NOW).unwrap();
            certificate_expires_soon(Some(&first), unreadable, now)
        };
        let expired = of(0, None);
        assert_eq!(expired.condition, "KopsAgentCertificateExpiresSoon");
        assert_warning(&expired, WarningReason::CertificateExpired, "kubelet expired at 2023-11-14T");
        assert_warning(&of(604_799, None), WarningReason::CertificateNotRenewed, "kops-agent-verify.timer");
        assert_warning(&of(604_800, None), WarningReason::CertificatesValid, "kubelet expires at 2023-11-21");
        // A known problem counts, even if the expiry of another certificate is unknown.
        assert_warning(&of(1, Some("/x.crt")), WarningReason::CertificateNotRenewed, "kubelet expires at");
        assert_warning(&of(604_800, Some("/x.crt")), WarningReason::NotObserved, "/x.crt is unknown");
    }
}
