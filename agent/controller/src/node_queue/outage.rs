//! An outage of the cloud: Nodes whose cloud does not answer wait together.
//!
//! Asking for each waiting Node would cost one call per Node, and no call would tell more than the first. So one Node
//! probes the cloud after each pause, and each time it is another Node. Once the cloud answers for the probe, all other
//! Nodes are reconciled together, which needs few calls. The pauses grow to a minute. So no Node waits longer than a
//! minute after an outage, however long the outage was.

use std::time::Duration;

use tokio::time::Instant;

use kops_agent_net::retry::Pauses;

/// The pauses between two probes of a cloud that does not answer.
pub const CLOUD_PAUSES: Pauses = Pauses { first: Duration::from_secs(1), longest: Duration::from_secs(60) };

/// An outage of the cloud. The state of each Node says whether the Node waits for the cloud.
#[derive(Debug)]
pub struct Outage {
    pauses: Pauses,
    /// The number of waiting Nodes, without the Node of the probe.
    waiting: usize,
    /// The probe: the Node for which the cloud is asked now.
    trying: Option<String>,
    /// The Node of the last probe.
    tried: String,
    /// The consecutive failures of the cloud.
    failures: u32,
    /// When the next probe is due; `None` during a probe, or if no Node waits.
    next: Option<Instant>,
}

impl Default for Outage {
    fn default() -> Outage {
        Outage::pausing(CLOUD_PAUSES)
    }
}

impl Outage {
    pub(super) fn pausing(pauses: Pauses) -> Outage {
        Outage { pauses, waiting: 0, trying: None, tried: String::new(), failures: 0, next: None }
    }

    /// Notes that the cloud did not answer for a Node. If this is the first failure of the outage, or if a probe with this Node failed,
    /// returns the pause before the next probe.
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

    pub fn failures(&self) -> u32 {
        self.failures
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Returns the Node of the last probe if the next probe is due.
    pub(super) fn due(&self, now: Instant) -> Option<&str> {
        self.next.filter(|next| *next <= now).map(|_| self.tried.as_str())
    }

    /// Starts a probe with a waiting Node: the cloud is asked for this Node now.
    pub(super) fn try_with(&mut self, name: &str) {
        self.waiting -= 1;
        self.next = None;
        name.clone_into(&mut self.tried);
        self.trying = Some(name.to_owned());
    }

    /// Notes that the cloud answered for a Node. If the request was a probe with this Node, ends the outage and returns true.
    pub(super) fn cloud_answered(&mut self, name: &str) -> bool {
        let is_over = self.trying.as_deref() == Some(name);
        if is_over {
            *self = Outage::pausing(self.pauses);
        }
        is_over
    }

    /// The number of waiting Nodes, including the Node for which the cloud is asked now.
    pub fn len(&self) -> usize {
        self.waiting + usize::from(self.trying.is_some())
    }

    pub(super) fn joined(&mut self) {
        self.waiting += 1;
    }

    /// Notes that a Node no longer waits for the cloud.
    pub(super) fn left(&mut self) {
        self.waiting -= 1;
        if self.waiting == 0 && self.trying.is_none() {
            self.next = None;
        }
    }

    /// Notes that a Node was deleted. If a probe with this Node was in progress, the next probe is due now.
    pub(super) fn gone(&mut self, name: &str, now: Instant) {
        if self.trying.take_if(|trying| trying == name).is_some() && self.waiting > 0 {
            self.next = Some(now);
        }
    }
}
