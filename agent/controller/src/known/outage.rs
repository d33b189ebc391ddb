//! The Nodes whose cloud could not be asked wait together.
//!
//! While a cloud does not answer, to ask it for each Node costs as many calls as there are Nodes, and tells nothing that one
//! of them would not tell. So one Node is looked at after each pause, another one each time. Once the cloud answers for it, all
//! others are looked at, together, for the cloud to be asked in few calls. The pauses grow to a minute, which is the longest
//! that a Node waits after the end of an outage, however long that was.

use std::time::Duration;

use tokio::time::Instant;

use crate::pauses::Pauses;

/// Those between two questions to a cloud that does not answer.
impl Default for Pauses {
    fn default() -> Pauses {
        Pauses { first: Duration::from_secs(1), longest: Duration::from_secs(60) }
    }
}

/// An outage of the cloud. Which Nodes wait for its end is known with each of them.
#[derive(Debug, Default)]
pub struct Outage {
    pauses: Pauses,
    /// The Nodes that wait, without the one that is looked at for all.
    waiting: usize,
    /// The one that is looked at, to see whether the cloud answers.
    trying: Option<String>,
    /// The one that was last.
    tried: String,
    /// Consecutive failures of the cloud.
    failures: u32,
    /// When it is asked again; none while it is, or while no Node waits.
    next: Option<Instant>,
}

impl Outage {
    pub(super) fn pausing(pauses: Pauses) -> Outage {
        Outage { pauses, ..Outage::default() }
    }

    /// The cloud did not answer for a Node. If that is the first that is known of the outage, or a Node was looked at to see
    /// whether it is over, this gives the pause that begins.
    pub(super) fn failed(&mut self, name: &str, now: Instant) -> Option<Duration> {
        let was_tried = self.trying.take_if(|trying| trying == name).is_some();
        let begins = self.next.is_none() && self.trying.is_none();
        if !was_tried && !begins {
            return None;
        }
        let pause = self.pauses.after(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.next = Some(now + pause);
        Some(pause)
    }

    /// Consecutive failures of the cloud.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// When the cloud is asked again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// The Node that was looked at last to see whether the cloud answers, if it is time for another.
    pub(super) fn due(&self, now: Instant) -> Option<&str> {
        self.next.filter(|next| *next <= now).map(|_| self.tried.as_str())
    }

    /// A Node, which waits no more, is looked at to see whether the cloud answers.
    pub(super) fn try_with(&mut self, name: &str) {
        self.waiting -= 1;
        self.next = None;
        name.clone_into(&mut self.tried);
        self.trying = Some(name.to_owned());
    }

    /// Ends the outage if this Node was looked at to see whether the cloud answers, which it does.
    pub(super) fn answered(&mut self, name: &str) -> bool {
        let is_over = self.trying.as_deref() == Some(name);
        if is_over {
            *self = Outage::pausing(self.pauses);
        }
        is_over
    }

    /// How many Nodes wait, the one included that is looked at for all.
    pub fn len(&self) -> usize {
        self.waiting + usize::from(self.trying.is_some())
    }

    pub(super) fn joined(&mut self) {
        self.waiting += 1;
    }

    /// A Node does not wait any more.
    pub(super) fn left(&mut self) {
        self.waiting -= 1;
        if self.waiting == 0 && self.trying.is_none() {
            self.next = None;
        }
    }

    /// A Node is gone. If it was to tell whether the cloud answers, another does, at once.
    pub(super) fn gone(&mut self, name: &str, now: Instant) {
        if self.trying.take_if(|trying| trying == name).is_some() && self.waiting > 0 {
            self.next = Some(now);
        }
    }
}
