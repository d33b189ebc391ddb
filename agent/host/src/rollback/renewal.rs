//! A node whose certificates are renewed while all else of it stays as it is: when that may be, and what is recorded of it.

use std::collections::BTreeMap;

use kops_agent_plan::diff::{Interrupted, Plan};
use kops_agent_plan::resource::DesiredState;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use super::journal::Journal;
use crate::error::Result;
use crate::host::Host;
use crate::record::{Failure, Record};
use crate::rolled_back::RolledBack;
use crate::root::Root;

/// A renewal with which something did not come back is tried again after this time: certificates have months left, and
/// each try starts components anew.
const AFTER_ROLLBACK: Duration = Duration::days(1);

/// Whether certificates may be renewed apart from everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewing {
    /// They may; and whether an earlier renewal was interrupted. With the `NodeupConfigHash` that was last applied.
    Free(Interrupted, String),
    /// Not now, and why.
    PutOff(String),
}

impl Host {
    /// What a run that renews certificates and changes nothing else is said to do; what it notes of its failure begins with
    /// it, and is forgotten once it succeeds.
    pub const RENEWING: &str = "renewing this node's certificates";

    /// Whether certificates may be renewed now while all else stays as it is.
    ///
    /// # Errors
    /// What earlier runs have left cannot be read.
    pub fn renewing(&self) -> Result<Renewing> {
        let record = self.record()?;
        let put_off = |why: &str| Ok(Renewing::PutOff(why.to_owned()));
        if record.config_hash.is_empty() {
            return put_off("this machine has not converged yet");
        }
        let interrupted = match Journal::read(&self.root)? {
            Some(journal) if journal.is_taken_back() => {
                return put_off(
                    "a run was interrupted while it took a change back; a converge goes on with that",
                );
            }
            Some(journal) if journal.attempt().is_renewal() => Interrupted::Yes,
            Some(_) => return put_off("a change was interrupted; a converge goes on with that"),
            None if record.has_begun_change() => {
                return put_off("a run was interrupted; a converge goes on with it");
            }
            None if record.is_begun() => Interrupted::Yes,
            None => Interrupted::No,
        };
        match &record.renewal_failure {
            Some(failure) if self.is_within(AFTER_ROLLBACK, &failure.at) => put_off(&format!(
                "it was tried at {} and taken back, and is tried again a day later, or by a converge: {}",
                failure.at, failure.problem
            )),
            _ => Ok(Renewing::Free(interrupted, record.config_hash)),
        }
    }

    /// Whether a time that was noted is no longer ago than this. A time to come is of a clock that was wrong.
    fn is_within(&self, time: Duration, noted: &str) -> bool {
        let Ok(noted) = OffsetDateTime::parse(noted, &Rfc3339) else { return false };
        let ago = self.now() - noted;
        !ago.is_negative() && ago < time
    }
}

/// Records that a renewal was taken back. A change that was refused before stays refused.
pub(super) fn record_renewal_rolled_back(
    root: &Root,
    mut record: Record,
    rolled_back: RolledBack,
) -> Result<RolledBack> {
    let failure = Failure::new(rolled_back.at.clone(), &rolled_back.to_string());
    record.renewal_failure = Some(failure.clone());
    record.failure = Some(failure);
    record.write(root)?;
    Journal::end(root)?;
    Ok(rolled_back)
}

/// Records how a renewal has left what it has written.
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
    record.settle_only(root, ids(), desired, written)?;
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
