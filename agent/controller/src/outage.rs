//! The Nodes whose cloud could not be asked, for the queue of the controller of nodes: they wait together.
//!
//! While a cloud does not answer, to ask it for each Node costs as many calls as there are Nodes, and tells nothing that one
//! of them would not tell. So one Node is looked at after each pause, another one each time. Once the cloud answers for it, all
//! others are looked at, together, for the cloud to be asked in few calls. The pauses grow to a minute, which is the longest
//! that a Node waits after the end of an outage, however long that was.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use tokio::time::Instant;

/// How long nobody asks a cloud that does not answer.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// After it did not answer for the first time. Each later pause is twice as long.
    pub first: Duration,
    /// The longest one.
    pub longest: Duration,
}

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses { first: Duration::from_secs(1), longest: Duration::from_secs(60) }
    }
}

/// Who waits, and until when.
#[derive(Debug, Default)]
pub struct Outage {
    pauses: Pauses,
    waiting: BTreeSet<String>,
    /// The one that is looked at, to see whether the cloud answers.
    trying: Option<String>,
    /// The one that was last.
    tried: String,
    /// How often in a row the cloud did not answer.
    failures: u32,
    /// When it is asked again; none while somebody does, or nobody waits.
    next: Option<Instant>,
}

impl Outage {
    /// With these pauses.
    pub fn pausing(pauses: Pauses) -> Outage {
        Outage { pauses, ..Outage::default() }
    }

    /// The cloud did not answer for a Node, which waits from now on. If that is the first that is known of the outage, or a Node
    /// was looked at to see whether it is over, this gives the pause that begins.
    pub fn failed(&mut self, name: &str, now: Instant) -> Option<Duration> {
        let was_tried = self.trying.take_if(|trying| trying == name).is_some();
        let begins = self.next.is_none() && self.trying.is_none();
        self.waiting.insert(name.to_owned());
        if !was_tried && !begins {
            return None;
        }
        let pause = self.pauses.first.saturating_mul(2u32.saturating_pow(self.failures.min(16)));
        let pause = pause.min(self.pauses.longest);
        self.failures = self.failures.saturating_add(1);
        self.next = Some(now + pause);
        Some(pause)
    }

    /// How often in a row the cloud did not answer.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// When the cloud is asked again.
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// The Node that is to be looked at to see whether the cloud answers, if it is time.
    pub fn take(&mut self, now: Instant) -> Option<String> {
        self.next.filter(|next| *next <= now)?;
        self.next = None;
        let after = (Bound::Excluded(self.tried.clone()), Bound::Unbounded);
        let name = self.waiting.range(after).next().or_else(|| self.waiting.first())?.clone();
        self.waiting.remove(&name);
        self.tried.clone_from(&name);
        self.trying = Some(name.clone());
        Some(name)
    }

    /// A Node was looked at, and it was not for the cloud if it could not be dealt with. If it was to see whether the cloud
    /// answers, this gives those who waited for it.
    pub fn answered(&mut self, name: &str) -> BTreeSet<String> {
        self.release(name);
        match self.trying.take_if(|trying| trying == name) {
            Some(_) => std::mem::replace(self, Outage::pausing(self.pauses)).waiting,
            None => BTreeSet::new(),
        }
    }

    /// Whether a Node waits.
    pub fn holds(&self, name: &str) -> bool {
        self.waiting.contains(name)
    }

    /// How many wait, the one included that is looked at for all.
    pub fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.trying.is_some())
    }

    /// A Node does not wait any more: something else has it looked at.
    pub fn release(&mut self, name: &str) {
        if self.waiting.remove(name) && self.waiting.is_empty() && self.trying.is_none() {
            self.next = None;
        }
    }

    /// A Node is gone. If it was to tell whether the cloud answers, another does, at once.
    pub fn gone(&mut self, name: &str, now: Instant) {
        self.release(name);
        if self.trying.take_if(|trying| trying == name).is_some() && !self.waiting.is_empty() {
            self.next = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn down(nodes: &[&str], now: Instant) -> Outage {
        let mut outage = Outage::default();
        for node in nodes {
            outage.failed(node, now);
        }
        outage
    }

    #[test]
    fn one_after_the_other_asks_for_all() {
        let now = Instant::now();
        let mut outage = down(&["a", "b", "c"], now);
        assert_eq!((outage.len(), outage.failures()), (3, 1), "they failed together");
        assert_eq!(outage.take(now), None);
        let mut asked = Vec::new();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let due = outage.next().unwrap();
            let name = outage.take(due).unwrap();
            assert_eq!((outage.take(due), outage.next(), outage.len()), (None, None, 3), "one at a time");
            pauses.push(outage.failed(&name, due).unwrap().as_secs());
            asked.push(name);
        }
        assert_eq!(asked.concat(), "abcabcabc", "one that never is answered for keeps nobody");
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60, 60]);
    }

    #[test]
    fn an_answer_is_the_end_for_all() {
        let now = Instant::now();
        let mut outage = down(&["a", "b", "c"], now);
        let due = outage.next().unwrap();
        let name = outage.take(due).unwrap();
        assert_eq!(outage.answered("of somebody who did not wait"), BTreeSet::new());
        assert_eq!(outage.answered(&name), ["b".to_owned(), "c".to_owned()].into());
        assert_eq!((outage.len(), outage.next(), outage.failures()), (0, None, 0));
        assert_eq!(outage.failed("a", now), Some(Pauses::default().first), "it begins anew");
    }

    #[test]
    fn who_is_gone_or_looked_at_otherwise_keeps_nobody_waiting() {
        let now = Instant::now();
        let mut outage = down(&["a", "b"], now);
        outage.release("b");
        assert!(!outage.holds("b") && outage.next().is_some());
        let due = outage.next().unwrap();
        assert_eq!(outage.take(due).unwrap(), "a");
        assert_eq!(outage.failed("b", due), None, "a is asked for");
        outage.gone("a", due);
        assert_eq!(outage.take(due).unwrap(), "b");
        outage.gone("b", due);
        assert_eq!((outage.len(), outage.next()), (0, None));
    }
}
