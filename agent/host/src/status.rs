//! The status of the machine, from the record and from observation. It needs no state store.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_plan::diff::{OwnedNow, OwnedState};
use kops_agent_plan::following::Followed;
use kops_agent_plan::resource::ResourceId;
use kops_agent_spec::kops_release::WrittenBy;
use serde::Serialize;
use serde_with::skip_serializing_none;
use time::OffsetDateTime;
use x509_parser::pem::Pem;

use crate::error::Result;
use crate::first_failure;
use crate::host::Host;
use crate::record::{Failure, Record, Superseded};
use crate::rollback::Journal;
use crate::rolled_back::RolledBack;
use crate::system::systemd::UnitState;

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// True if the agent's resources are unchanged since the last successful run, and all units of the agent run. Also true after a failed
    /// run that changed nothing.
    pub converged: bool,
    /// Whether the machine has never converged.
    pub never_converged: bool,
    /// The `NodeupConfigHash` of the last configuration to which the machine converged. Empty before the first convergence.
    pub config_hash: String,
    /// The kOps release that wrote the configuration of `config_hash`; `None` if no run recorded the release.
    pub written_by: Option<WrittenBy>,
    /// The `NodeupConfigHash` in the user-data, if the node follows its group to another configuration.
    pub followed_from: Option<String>,
    /// Since when the machine has been converged, in RFC 3339.
    pub converged_since: Option<String>,
    /// Why the last run failed. `None` if it succeeded.
    pub failure: Option<Failure>,
    /// Whether a run has begun a change and has not finished it. The run may be in progress or killed.
    pub unfinished: bool,
    /// The last rolled-back change. `None` after a later run has succeeded.
    pub rolled_back: Option<RolledBack>,
    /// The newer configuration that new machines get, if it differs from the configuration of this machine.
    pub superseded: Option<Superseded>,
    pub changed: Vec<Drift>,
    /// The agent's units that must run.
    pub units: Vec<UnitStatus>,
    /// The node's own certificates, the earliest expiry first.
    pub certificates: Vec<CertificateStatus>,
}

/// A resource that has changed since the agent wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drift {
    pub resource: ResourceId,
    /// How the resource differs: `gone`, or any of `content`, `mode`, `owner`, `target`, `type`.
    pub how: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnitStatus {
    pub name: String,
    /// Whether the unit runs, or is a run-once unit that has already run.
    pub running: bool,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// The file that contains the certificate: PEM, or a kubeconfig.
    pub path: String,
    /// The expiry in seconds since 1970; `None` if the file has no readable certificate.
    pub expires: Option<i64>,
    /// The whole days until the expiry; negative after the expiry.
    pub days_left: Option<i64>,
}

impl UnitStatus {
    fn new(name: &str, state: UnitState) -> UnitStatus {
        UnitStatus { name: name.to_owned(), running: state.running && !state.restarting }
    }
}

impl Host {
    /// Inspects the machine. Changes nothing.
    pub fn status(&self) -> Result<Status> {
        let record = self.record()?;
        let changed = drift(&self.owned_of(&record)?);
        let units = self.unit_statuses(&record)?;
        let certificates = self.certificate_statuses(&record)?;
        // Check the record and the journal. Some runs write no journal: runs before the first convergence, and runs that
        // wait for no component.
        let unfinished = record.is_begun() || Journal::read(&self.root)?.is_some();
        let never_converged = record.config_hash.is_empty();
        let is_as_left = record.converged_since.is_some() && !unfinished && changed.is_empty();
        let failure = first_failure::last_failure(&self.root, &record)?;
        let applied = self.applied()?;
        let followed = applied.as_ref().and_then(|applied| applied.followed.as_ref());
        let followed_from = followed.and_then(Followed::pinned_by_user_data).map(str::to_owned);
        let written_by = applied.and_then(|applied| applied.written_by);
        Ok(Status {
            converged: is_as_left && units.iter().all(|unit| unit.running),
            never_converged,
            config_hash: record.config_hash,
            written_by,
            followed_from,
            converged_since: record.converged_since,
            failure,
            unfinished,
            rolled_back: record.rolled_back,
            superseded: record.superseded,
            changed,
            units,
            certificates,
        })
    }

    /// The resources that other programs have changed since the last run.
    pub fn drift(&self) -> Result<Vec<Drift>> {
        Ok(drift(&self.owned()?))
    }

    /// The node's own certificates, the earliest expiry first.
    pub fn certificates(&self) -> Result<Vec<CertificateStatus>> {
        self.certificate_statuses(&self.record()?)
    }

    fn unit_statuses(&self, record: &Record) -> Result<Vec<UnitStatus>> {
        let names = record.running_units();
        let states = self.unit_states(&names)?;
        Ok(names.into_iter().zip(states).map(|(name, state)| UnitStatus::new(name, state)).collect())
    }

    fn certificate_statuses(&self, record: &Record) -> Result<Vec<CertificateStatus>> {
        let now = self.now();
        let mut statuses = Vec::new();
        for path in record.certificates() {
            let expires = self.root.read(path)?.and_then(|file| expiry(&file));
            statuses.push(CertificateStatus {
                path: path.to_owned(),
                expires: expires.map(OffsetDateTime::unix_timestamp),
                days_left: expires.map(|expires| (expires - now).whole_days()),
            });
        }
        statuses.sort_by(|a, b| (a.expires, &a.path).cmp(&(b.expires, &b.path)));
        Ok(statuses)
    }
}

fn drift(owned: &OwnedState) -> Vec<Drift> {
    let mut changed = Vec::new();
    for (id, owned) in owned {
        let how = match &owned.now {
            OwnedNow::AsLeft => continue,
            OwnedNow::Gone => vec!["gone".to_owned()],
            OwnedNow::Changed(how) => how.clone(),
        };
        changed.push(Drift { resource: id.clone(), how });
    }
    changed
}

/// The expiry of the first certificate in a PEM file or kubeconfig.
fn expiry(file: &[u8]) -> Option<OffsetDateTime> {
    let text = std::str::from_utf8(file).ok()?;
    let in_kubeconfig = text.lines().find_map(|line| line.trim().strip_prefix("client-certificate-data:"));
    let pem = match in_kubeconfig {
        Some(data) => STANDARD.decode(data.trim()).ok()?,
        None => file.to_vec(),
    };
    let certificate = Pem::iter_from_buffer(&pem).flatten().find(|block| block.label == "CERTIFICATE")?;
    Some(certificate.parse_x509().ok()?.validity().not_after.to_datetime())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kops_agent_plan::diff::{Action, Enablement, Plan, Stage, Step};
    use kops_agent_plan::resource::{DesiredState, File, Unit};
    use kops_agent_spec::digest::sha256_hex;

    use super::*;
    use crate::attempt::Attempt;
    use crate::staged::write_file;
    use crate::system::systemd::Rest;

    #[test]
    fn a_unit_in_a_restart_loop_does_not_run() {
        let state = |restarting| UnitState {
            is_known: true,
            enablement: Enablement::Enabled,
            running: true,
            rests: Rest::No,
            restarting,
            ..UnitState::UNKNOWN
        };
        assert!(UnitStatus::new("kubelet.service", state(false)).running);
        assert!(!UnitStatus::new("kubelet.service", state(true)).running);
    }

    #[test]
    fn a_unit_that_must_not_run_is_no_problem() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::scratch(folder.path()).unwrap();
        let mut desired = DesiredState::default();
        let kubelet = Unit { enabled: false, running: false, ..Unit::new("kubelet.service", "[Service]\n") };
        let path = crate::places::unit_path(&host.root, &kubelet.name);
        desired.add(kubelet);
        write_file(&host.root, &path, 0o644, None, b"[Service]\n").unwrap();
        let mut record = Record::default();
        record.config_hash = "hash".into();
        record.converged_since = Some("2026-11-21T12:00:00Z".into());
        record.settle(&host.root, &desired, &BTreeMap::new()).unwrap();
        record.write(&host.root).unwrap();
        assert!(!host.status().unwrap().converged, "by a record of an earlier agent, all units must run");

        record.note_settled(&desired, None);
        record.write(&host.root).unwrap();
        let status = host.status().unwrap();
        assert!(status.converged && status.units.is_empty(), "{status:?}");
    }

    #[test]
    fn an_unfinished_change_is_not_converged() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::scratch(folder.path()).unwrap();
        let mut desired = DesiredState::default();
        desired.add(File::text("/etc/x", "new"));
        write_file(&host.root, "/etc/x", 0o644, None, b"new").unwrap();
        let mut record = Record::default();
        record.config_hash = "hash".into();
        record.converged_since = Some("2026-11-21T12:00:00Z".into());
        record.settle(&host.root, &desired, &BTreeMap::new()).unwrap();
        record.write(&host.root).unwrap();
        assert!(host.status().unwrap().converged);

        // The run was killed after it wrote the file. The content is right, but no component has read the file.
        let mut begun = record.clone();
        let (id, _) = desired.iter().next().unwrap();
        let step =
            Step { stage: Stage::Files, resource: id.clone(), action: Action::Change, changes: vec![] };
        let written = BTreeMap::from([("/etc/x".to_owned(), sha256_hex(b"new"))]);
        begun.claim(&host.root, &Plan { steps: vec![step], ..Plan::default() }, &desired, &written).unwrap();
        begun.write(&host.root).unwrap();
        let status = host.status().unwrap();
        assert!(status.unfinished && !status.converged && status.changed.is_empty(), "{status:?}");

        // The run was killed after it wrote the journal and before it changed the record.
        record.write(&host.root).unwrap();
        Journal::new(Attempt::new(&desired, "next")).write(&host.root).unwrap();
        let status = host.status().unwrap();
        assert!(status.unfinished && !status.converged, "{status:?}");
        Journal::end(&host.root).unwrap();
        assert!(host.status().unwrap().converged);
    }

    #[test]
    fn a_run_that_failed_and_changed_nothing_is_no_drift() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::scratch(folder.path()).unwrap();
        let mut desired = DesiredState::default();
        desired.add(File::text("/etc/x", "x"));
        write_file(&host.root, "/etc/x", 0o644, None, b"x").unwrap();
        let mut record = Record::default();
        record.config_hash = "hash".into();
        record.converged_since = Some("2026-11-21T12:00:00Z".into());
        record.settle(&host.root, &desired, &BTreeMap::new()).unwrap();
        record.write(&host.root).unwrap();
        host.note_failure(kops_agent_spec::failure::Kind::Other, "the store cannot be reached").unwrap();
        let status = host.status().unwrap();
        assert!(status.converged && status.failure.is_some() && !status.never_converged, "{status:?}");

        std::fs::write(folder.path().join("etc/x"), "y").unwrap();
        assert!(!host.status().unwrap().converged);
    }

    #[test]
    fn a_certificate_is_found_in_pem_and_in_a_kubeconfig() {
        let mut params = rcgen::CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(2031, 2, 3);
        let pem = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
        let expected = Some(rcgen::date_time_ymd(2031, 2, 3));
        assert_eq!(expiry(pem.as_bytes()), expected);
        let data = STANDARD.encode(&pem);
        let kubeconfig =
            format!("users:\n- user:\n    client-certificate-data: {data}\n    client-key-data: x\n");
        assert_eq!(expiry(kubeconfig.as_bytes()), expected);
        assert_eq!(expiry(b"nothing of the kind"), None);
    }
}
