//! Certificate renewal while the rest of the node stays unchanged: decides when it is allowed, and records its result.

use std::collections::BTreeMap;

use kops_agent_plan::diff::{Interrupted, Plan};
use kops_agent_plan::resource::DesiredState;
use kops_agent_spec::failure::Kind;
use kops_agent_spec::parse_timestamp;
use time::Duration;

use super::journal::Journal;
use crate::error::Result;
use crate::host::Host;
use crate::places::path_of;
use crate::record::{Failure, Record};
use crate::rolled_back::RolledBack;
use crate::root::Root;

/// The delay before a rolled-back renewal is retried. The delay is long, because each try restarts components. This is safe, because
/// certificates are valid for months.
const AFTER_ROLLBACK: Duration = Duration::days(1);

/// Whether certificates may be renewed now without other changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewing {
    /// Renewal is allowed. The fields say whether an earlier renewal was interrupted, and contain the `NodeupConfigHash` of the last
    /// applied state.
    Free(Interrupted, String),
    /// Renewal must wait. The text is the reason.
    PutOff(String),
}

impl Host {
    /// The description of a run that only renews certificates. The recorded failure of such a run begins with this text. A later successful
    /// run recognizes the failure by this text, and removes it.
    pub const RENEWING: &str = "renewing this node's certificates";

    /// Whether a run that only renews certificates may start now. If not, says why.
    pub fn renewing(&self) -> Result<Renewing> {
        let record = self.record()?;
        let put_off = |why: &str| Ok(Renewing::PutOff(why.to_owned()));
        if record.config_hash.is_empty() {
            return put_off("this machine has not converged yet");
        }
        let interrupted = match Journal::read(&self.root)? {
            Some(journal) if journal.is_rolling_back() => {
                return put_off("a rollback was interrupted; the next `kops-agent converge` finishes it");
            }
            Some(journal) if journal.attempt().is_renewal() => Interrupted::Yes,
            Some(_) => {
                return put_off("a change was interrupted; the next `kops-agent converge` finishes it");
            }
            None if record.has_begun_change() => {
                return put_off("a run was interrupted; the next `kops-agent converge` continues it");
            }
            None if record.is_begun() => Interrupted::Yes,
            None => Interrupted::No,
        };
        match &record.renewal_failure {
            Some(failure) if self.is_within(AFTER_ROLLBACK, &failure.at) => put_off(&format!(
                "the renewal at {} was rolled back: {}. The next try is a day after that renewal; to try now, \
                 run `kops-agent converge`",
                failure.at, failure.problem
            )),
            _ => Ok(Renewing::Free(interrupted, record.config_hash)),
        }
    }

    /// Whether the time `noted` is less than `time` ago. If `noted` is in the future, a clock was wrong, and the result is false.
    fn is_within(&self, time: Duration, noted: &str) -> bool {
        let Some(noted) = parse_timestamp(noted) else { return false };
        let ago = self.now() - noted;
        !ago.is_negative() && ago < time
    }
}

/// Records a rolled-back renewal. Does not change `record.rolled_back`: if an earlier change was rejected, it stays rejected.
pub(super) fn record_renewal_rolled_back(
    root: &Root,
    mut record: Record,
    rolled_back: RolledBack,
) -> Result<RolledBack> {
    let failure = Failure::new(rolled_back.at.clone(), Kind::RolledBack, &rolled_back.to_string());
    record.renewal_failure = Some(failure.clone());
    record.failure = Some(failure);
    record.write(root)?;
    Journal::end(root)?;
    Ok(rolled_back)
}

/// Records the state of the resources that a renewal wrote.
pub(crate) fn settle_renewal(
    root: &Root,
    mut record: Record,
    plan: &Plan,
    desired: &DesiredState,
    written: &BTreeMap<String, String>,
) -> Result<()> {
    if plan.is_empty() {
        return Ok(());
    }
    let ids = || plan.steps.iter().map(|step| &step.resource);
    let files = ids().filter(|id| written.contains_key(&path_of(root, id)));
    record.settle_only(root, files, desired, written)?;
    record.forget_begun(ids());
    record.begun_state = None;
    let failed = record.renewal_failure.take();
    let is_of_renewal =
        |noted: &Failure| Some(noted) == failed.as_ref() || noted.problem.starts_with(Host::RENEWING);
    if record.failure.as_ref().is_some_and(is_of_renewal) {
        record.failure = None;
    }
    record.write(root)
}
