//! Observes this machine for the early warnings of its Node. The observations ask no server and change nothing.

use std::path::Path;
use std::time::Duration;

use kops_agent_cluster::fleet::{EarlyWarning, FirstCertificate};
use kops_agent_host::CertificateStatus;
use kops_agent_plan::doctor::early_warnings::{
    certificate_expires_soon, clock_unsynchronized, disk_pressure_soon,
};
use time::OffsetDateTime;
use tokio::join;

use super::machine;

/// Timeout of each observation. It is short, because a whole report takes at most 5 seconds and waits for the
/// observations.
const WITHIN: Duration = Duration::from_secs(2);

/// The early warnings of the machine at `root`. `certificates` are the certificates of the node, the earliest expiry
/// first.
pub(crate) async fn observe(root: &Path, certificates: &[CertificateStatus]) -> Vec<EarlyWarning> {
    let (disks, is_synchronized) = join!(
        machine::growing_disks(root, WITHIN),
        machine::is_settled_clock_synchronized(root == Path::new("/"), WITHIN),
    );
    let mut dated = certificates.iter().filter_map(|of| FirstCertificate::from_expiry(&of.path, of.expires?));
    let unreadable = certificates.iter().find(|of| of.expires.is_none());
    vec![
        disk_pressure_soon(&disks),
        clock_unsynchronized(&is_synchronized),
        certificate_expires_soon(
            dated.next().as_ref(),
            unreadable.map(|of| of.path.as_str()),
            OffsetDateTime::now_utc(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_cluster::fleet::{EARLY_WARNINGS, WarningReason};

    use super::*;

    fn certificate(path: &str, expires: Option<i64>) -> CertificateStatus {
        CertificateStatus { path: path.into(), expires, days_left: None }
    }

    #[tokio::test]
    async fn each_early_warning_is_observed_once() {
        let root = tempfile::tempdir().unwrap();
        let certificates = [certificate("/lost.crt", None), certificate("/old.crt", Some(0))];
        let warnings = observe(root.path(), &certificates).await;
        assert_eq!(warnings.iter().map(|warning| warning.condition).collect::<Vec<_>>(), EARLY_WARNINGS);
        assert_ne!(warnings[0].reason, WarningReason::NotObserved, "{warnings:?}");
        assert_eq!(warnings[1].reason, WarningReason::NotObserved, "only the machine itself has a clock");
        assert_eq!(warnings[2].reason, WarningReason::CertificateExpired, "{warnings:?}");
    }

    #[tokio::test]
    async fn a_root_that_does_not_exist_is_unknown() {
        let root = tempfile::tempdir().unwrap();
        for warning in observe(&root.path().join("nowhere"), &[certificate("/lost.crt", None)]).await {
            assert_eq!(warning.reason, WarningReason::NotObserved, "{warning:?}");
        }
    }
}
