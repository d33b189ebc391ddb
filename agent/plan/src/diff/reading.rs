//! Decides whether a changed file restarts the unit or static pod that has read the file.
//!
//! A reading records what the unit or pod read when it started, in two digests: of the bytes, and of their meaning. A change of
//! only the bytes restarts nothing. For example, a text is in another notation, or a new certificate has the same authority and the
//! same names: nodeup issues all certificates anew at every boot. A certificate that is due to be renewed is the exception: its
//! reader restarts.

use std::fmt;

use time::OffsetDateTime;

use super::observed::{Observed, ObservedState, Serves};
use super::plan::Plan;
use super::removals::{Keeping, Kept};
use super::step::{Change, Step};
use super::{pods, units};
use crate::resource::{DesiredState, Kind, Resource, ResourceId};
use kops_agent_spec::digest::sha256_hex;
use kops_agent_spec::timestamp;

/// The value of `Reading::bytes` if the bytes are unknown.
const UNSEEN: &str = "unseen";

/// The contents that a unit or static pod has read, or would read if it started now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    bytes: String,
    /// The digest of the contents' meaning. Contents with different bytes can have the same meaning. `None` if only equal bytes are
    /// equivalent.
    meaning: Option<String>,
    /// The renewal time of the certificate that is due first, in seconds since 1970.
    pub due: Option<u64>,
}

impl Reading {
    /// Makes a reading from these resources and, for a unit, from its text. `text` has two texts of the unit: the present text, then the
    /// desired text.
    pub(super) fn new<'a>(
        text: Option<[&str; 2]>,
        read: impl Iterator<Item = &'a ResourceId>,
        observed: &ObservedState,
    ) -> Reading {
        let (mut bytes, mut meaning) = (String::new(), String::new());
        if let Some([present, wanted]) = text {
            bytes = format!("text {}\n", sha256_hex(present.as_bytes()));
            meaning = format!("text {}\n", sha256_hex(wanted.as_bytes()));
        }
        let mut due = None;
        for id in read {
            let found = observed.get(id);
            bytes.push_str(&format!("{id} {}\n", fingerprint(found)));
            match serves(found) {
                Some(serves) => {
                    meaning.push_str(&format!("{id} {}\n", serves.digest));
                    due = [due, serves.due].into_iter().flatten().min();
                }
                None => meaning.push_str(&format!("{id} {}\n", fingerprint(found))),
            }
        }
        let [bytes, meaning] = [bytes, meaning].map(|text| sha256_hex(text.as_bytes()));
        Reading { bytes, meaning: Some(meaning), due }
    }

    /// Returns this reading with unknown bytes and the same meaning. Its renewal time becomes `due`, unless this reading already has an
    /// earlier renewal time.
    pub(super) fn of_earlier_bytes(self, due: u64) -> Reading {
        Reading { bytes: UNSEEN.into(), due: Some(self.due.map_or(due, |own| own.min(due))), ..self }
    }

    /// Parses a recorded reading. If one of its certificates is due for renewal at `now`, drops the digest of the meaning, so that only
    /// equal bytes are equivalent. Earlier versions of the agent recorded only the digest of the bytes.
    pub fn noted(text: &str, now: OffsetDateTime) -> Reading {
        let mut words = text.split(' ').map(str::to_owned);
        let bytes = words.next().unwrap_or_default();
        let meaning = words.next();
        let due = words.next().and_then(|due| due.parse().ok());
        let is_due = due.is_some_and(|due: u64| i128::from(due) <= i128::from(now.unix_timestamp()));
        Reading { bytes, meaning: meaning.filter(|_| !is_due), due }
    }

    /// Whether a unit or static pod that started with this reading can continue without a restart if its files now have the reading
    /// `present`.
    pub(super) fn serves_as(&self, present: &Reading) -> bool {
        self.bytes == present.bytes || (self.meaning.is_some() && self.meaning == present.meaning)
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.bytes)?;
        if let Some(meaning) = &self.meaning {
            write!(f, " {meaning}")?;
        }
        match (&self.meaning, self.due) {
            (Some(_), Some(due)) => write!(f, " {due}"),
            _ => Ok(()),
        }
    }
}

/// The part of a resource that matters to a running program. Owner and mode do not matter, because the program has already opened the file.
fn fingerprint(observed: Option<&Observed>) -> String {
    match observed {
        None => "absent".into(),
        Some(Observed::File(file)) => file.sha256.clone(),
        Some(Observed::Certificate(certificate)) => certificate.fingerprint.clone(),
        Some(Observed::Resource(Resource::Symlink(link))) => link.target.clone(),
        Some(Observed::Resource(_) | Observed::Unit(_)) => "present".into(),
        Some(Observed::Other(what)) => what.clone(),
    }
}

/// Describes the contents that are equivalent to the content of this file. `None` if no other content is equivalent.
pub(super) fn serves(observed: Option<&Observed>) -> Option<&Serves> {
    match observed {
        Some(Observed::File(file)) => file.serves.as_ref(),
        _ => None,
    }
}

/// Whether a plan changes a resource in such a way that running programs must read the resource again.
pub(super) fn must_be_read(id: &ResourceId, observed: &ObservedState, plan: &Plan) -> bool {
    plan.step(id).is_some_and(Step::changes_content) && serves(observed.get(id)).is_none()
}

/// The units and static pods that continue with older certificates although new certificates were issued. The plan reports them.
pub(super) fn kept(desired: &DesiredState, observed: &ObservedState, plan: &Plan) -> Vec<Kept> {
    let goes_on = |id: &ResourceId| {
        plan.step(id).is_none_or(|step| {
            let is_started = |change: &Change| matches!(change, Change::Start | Change::Stop);
            !step.restarts() && !step.starts_pod() && !step.changes.iter().any(is_started)
        })
    };
    let keep = |(id, resource): (&ResourceId, &Resource)| {
        let (noted, present) = match (resource, observed.get(id)?) {
            (Resource::Unit(unit), Observed::Unit(found)) if found.running => {
                (found.stamp.as_ref()?, units::reading(unit, observed)?)
            }
            (Resource::File(file), Observed::File(found)) => {
                (found.pod_mounted.as_ref()?, pods::reading(file, desired, observed)?)
            }
            _ => return None,
        };
        let until = OffsetDateTime::from_unix_timestamp(i64::try_from(noted.due?).ok()?).ok()?;
        (noted.bytes != present.bytes && noted.serves_as(&present) && goes_on(id)).then(|| Kept {
            resource: id.clone(),
            why: format!(
                "its certificates were issued anew for the same names by the same authority; it reads the \
                 new certificates at its next restart, which is at {} at the latest",
                timestamp(until)
            ),
            keeping: Keeping::Loaded,
        })
    };
    let started = desired.iter().filter(|(id, _)| matches!(id.kind, Kind::Unit | Kind::File));
    started.filter_map(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(seconds).expect("a time")
    }

    fn reading(bytes: &str, meaning: Option<&str>, due: Option<u64>) -> Reading {
        Reading { bytes: bytes.into(), meaning: meaning.map(Into::into), due }
    }

    #[test]
    fn a_recorded_reading_reads_back() {
        for one in [reading("a", Some("b"), Some(9)), reading("a", Some("b"), None), reading("a", None, None)]
        {
            assert_eq!(Reading::noted(&one.to_string(), at(8)), one);
        }
    }

    #[test]
    fn equivalent_content_serves_until_a_certificate_is_due() {
        let noted = reading("old", Some("same"), Some(9)).to_string();
        let present = reading("new", Some("same"), Some(99));
        assert!(Reading::noted(&noted, at(8)).serves_as(&present));
        assert!(!Reading::noted(&noted, at(9)).serves_as(&present), "it is due");
        let unchanged = reading("old", Some("same"), Some(9));
        assert!(Reading::noted(&noted, at(9)).serves_as(&unchanged), "there is nothing newer to read");
        assert!(!Reading::noted(&noted, at(8)).serves_as(&reading("new", Some("other"), None)));
        // Earlier versions of the agent recorded only the digest of the bytes.
        assert!(Reading::noted("old", at(8)).serves_as(&unchanged));
        assert!(!Reading::noted("old", at(8)).serves_as(&present));
    }
}
