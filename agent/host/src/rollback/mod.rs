//! Taking a change back: everything that a run has replaced is put back, and what it has restarted is restarted again.
//!
//! Files come first, then the container runtime, other units and kubelet; static pods last and one after another,
//! because only a kubelet that is well brings them back.

mod journal;
mod keeping;
mod renewal;
mod restarting;
mod restoring;

use kops_agent_plan::health::{self, Check, Component};
use kops_agent_plan::resource::{Kind, ResourceId};
use serde::{Deserialize, Serialize};

use crate::assets::Progress;
use crate::error::{Error, Result};
use crate::health::Expected;
use crate::host::Host;
use crate::record::Failure;
use crate::stamps::Stamp;

pub(crate) use journal::{Attempt, Journal};
pub use renewal::Renewing;

/// A change that was taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolledBack {
    /// When, in RFC 3339.
    pub at: String,
    /// `NodeupConfigHash` of the configuration that was tried.
    pub config_hash: String,
    /// That of the configuration of before, which is in force again.
    pub back_to: String,
    /// What was wrong.
    pub problem: String,
    /// What is wrong although everything is as it was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub still_wrong: Vec<String>,
    /// What tells the state that was tried from others.
    desired: String,
}

impl RolledBack {
    /// Whether this is what was tried.
    pub(crate) fn is_of(&self, attempt: &Attempt) -> bool {
        self.desired == attempt.desired
    }
}

impl std::fmt::Display for RolledBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.back_to.as_str() {
            // It was another program's node.
            "" => write!(f, "{}; rolled back to what was there before kops-agent", self.problem)?,
            before => write!(f, "{}; rolled back to the configuration of before ({before})", self.problem)?,
        }
        match self.still_wrong.as_slice() {
            [] => f.write_str(", with which everything is well again"),
            wrong => write!(f, ", and still: {}", wrong.join("; ")),
        }?;
        f.write_str(match self.desired.as_str() {
            journal::RENEWAL => ". The certificates are renewed again after a day, or by a converge",
            _ => ". It is not tried again until the configuration changes or --retry-failed is given",
        })
    }
}

impl Host {
    /// Goes on with taking a change back, where a run was interrupted at that. To be called before anything is
    /// observed.
    ///
    /// # Errors
    /// Something cannot be put back.
    pub async fn finish_rollback(&self, progress: &dyn Progress) -> Result<Option<RolledBack>> {
        let _lock = self.lock()?;
        match Journal::read(&self.root)? {
            Some(journal) if journal.is_taken_back() => {
                self.roll_back(journal, None, progress).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Takes a change back; `why` is what is wrong with it, unless the journal knows already.
    pub(crate) async fn roll_back(
        &self,
        mut journal: Journal,
        why: Option<String>,
        progress: &dyn Progress,
    ) -> Result<RolledBack> {
        if let Some(why) = why {
            progress.warned(&format!("{why}; putting everything back as it was"));
            journal.taken_back = Some(why);
            journal.write(&self.root)?;
        }
        let is_pod = |id: &ResourceId| id.kind == Kind::File && health::is_manifest(&id.name);
        let mut still_wrong = Vec::new();
        self.put_units_back(&journal, &mut still_wrong).await?;
        self.put_back(&journal, |id| !is_pod(id))?;
        self.put_volumes_back(&journal, &mut still_wrong)?;
        note(self.systemd.reload(), &mut still_wrong)?;
        self.run_commands_again(&journal, progress, &mut still_wrong)?;
        let not_restarted = self.restart_units(&journal, progress, &mut still_wrong).await?;
        let mut pods: Vec<&ResourceId> = journal.kept.keys().filter(|id| is_pod(id)).collect();
        pods.sort_by_key(|id| health::rank(&id.name));
        for pod in pods {
            self.put_back(&journal, |id| id == pod)?;
            if journal.begun.contains(pod) {
                progress.waiting(pod);
                if journal.restarts_pod(pod) {
                    note(self.end_containers(&pod.name, &self.present_texts()), &mut still_wrong)?;
                }
                self.wait_for_pod_of_before(&journal, pod, &mut still_wrong).await?;
            }
        }
        self.put_stamps_back(&journal)?;
        // What still runs may be what the change has started.
        for unit in &not_restarted {
            Stamp::Unit.put_back(&self.root, unit, None)?;
        }
        self.record_rollback(&journal, still_wrong)
    }

    async fn wait_for_pod_of_before(
        &self,
        journal: &Journal,
        pod: &ResourceId,
        still_wrong: &mut Vec<String>,
    ) -> Result<()> {
        let Some(component) = health::of_manifest(&pod.name, &self.present_texts()) else { return Ok(()) };
        let expected = journal.pod_before(pod).map_or(Expected::Any, Expected::Same);
        note(self.wait_until_well(&component, expected).await, still_wrong)
    }

    fn record_rollback(&self, journal: &Journal, still_wrong: Vec<String>) -> Result<RolledBack> {
        let mut record = self.record()?;
        let rolled_back = RolledBack {
            at: self.timestamp(),
            config_hash: journal.attempt.config_hash.clone(),
            back_to: record.config_hash.clone(),
            problem: journal.taken_back.clone().unwrap_or_default(),
            still_wrong,
            desired: journal.attempt.desired.clone(),
        };
        record.unclaim();
        self.shred_begun()?;
        if journal.attempt.is_renewal() {
            return self.record_renewal_rolled_back(record, rolled_back);
        }
        record.failure = Some(Failure { at: rolled_back.at.clone(), problem: rolled_back.to_string() });
        // What puts the last good state right is tried again by each run; what was refused beside it stays refused.
        let is_of_last_good = record.is_settled_with(&journal.attempt);
        if record.rolled_back.is_none() || !is_of_last_good {
            record.rolled_back = Some(rolled_back.clone());
        }
        record.write(&self.root)?;
        Journal::end(&self.root)?;
        Ok(rolled_back)
    }

    /// The texts of files as they are.
    pub(crate) fn present_texts(&self) -> impl Fn(&str) -> Option<String> {
        |path| String::from_utf8(self.root.read(path).ok()??).ok()
    }

    /// The UID under which the pod of a component runs, if it does.
    pub(crate) fn running_pod(&self, component: &Component) -> Option<String> {
        component.checks.iter().find_map(|check| match check {
            Check::Pod { pod, socket } => self.health.pod_uid(pod, socket).ok().flatten(),
            _ => None,
        })
    }
}

/// What is wrong with a component, or refused by it, ends no rollback: the others are to be put back all the same.
fn note(outcome: Result<()>, still_wrong: &mut Vec<String>) -> Result<()> {
    match outcome {
        Err(error) if error.is_refusal() || matches!(error, Error::Unwell { .. }) => {
            still_wrong.push(error.to_string());
            Ok(())
        }
        other => other,
    }
}
