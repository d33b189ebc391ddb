//! When a Node is reconciled: its place in the queue, and its backoff.

use std::time::Duration;

use tokio::time::Instant;

use kops_agent_net::retry::Pauses;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(10 * 60);
/// How many writes to a Node may follow each other without a backoff. A new Node whose group is being edited needs several writes.
pub(super) const WRITES_AT_ONCE: u32 = 4;
/// After this time without a write to a Node, the earlier writes to this Node cause no backoff. The time is longer than the longest
/// backoff.
pub(super) const WRITES_FORGOTTEN: Duration = Duration::from_secs(30 * 60);

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct QueueEntry {
    /// When the Node is due. A backoff may delay its reconcile beyond this time.
    due: Option<Instant>,
    pub(super) is_looked_at: bool,
    /// Whether the Node was woken during its reconcile.
    is_woken: bool,
    failures: u32,
    /// The end of the backoff that followed the last failure.
    pause: Option<Instant>,
    writes: Option<Writes>,
}

/// The latest writes to a Node.
#[derive(Debug, PartialEq, Eq)]
struct Writes {
    times: u32,
    last: Instant,
    /// The end of the backoff after more than `WRITES_AT_ONCE` writes to the Node. No event ends this backoff early.
    rest: Instant,
}

impl QueueEntry {
    /// The entry of a deleted Node that is still being reconciled.
    pub(super) fn of_gone() -> QueueEntry {
        QueueEntry { is_looked_at: true, ..QueueEntry::default() }
    }

    /// The earliest time at which the Node may be reconciled; `None` if the Node is not queued.
    pub(super) fn not_before(&self) -> Option<Instant> {
        let rest = self.writes.as_ref().map(|writes| writes.rest);
        Some([self.pause, rest].into_iter().flatten().fold(self.due?, Instant::max))
    }

    pub(super) fn changed(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    pub(super) fn wake(&mut self, at: Instant) {
        self.pause = None;
        self.is_woken |= self.is_looked_at;
        self.changed(at);
    }

    pub(super) fn begin(&mut self) {
        self.due = None;
        self.is_looked_at = true;
    }

    pub(super) fn done(&mut self) {
        *self = QueueEntry { due: self.due, writes: self.writes.take(), ..QueueEntry::default() };
    }

    pub(super) fn failed(&mut self, name: &str, now: Instant) -> Duration {
        self.is_looked_at = false;
        let pause = pause(name, self.failures);
        self.failures = self.failures.saturating_add(1);
        if std::mem::take(&mut self.is_woken) {
            return Duration::ZERO;
        }
        self.pause = Some(now + pause);
        self.changed(now + pause);
        pause
    }

    /// Takes the Node off the queue, because the cloud does not answer for the Node.
    pub(super) fn suspend(&mut self) {
        self.is_looked_at = false;
        self.is_woken = false;
        self.due = None;
    }

    pub(super) fn written(&mut self, name: &str, now: Instant) -> Option<Duration> {
        let writes = self.writes.get_or_insert(Writes { times: 0, last: now, rest: now });
        if now.saturating_duration_since(writes.last) > WRITES_FORGOTTEN {
            writes.times = 0;
        }
        writes.times = writes.times.saturating_add(1);
        writes.last = now;
        let pause = writes.times.checked_sub(WRITES_AT_ONCE + 1).map(|again| pause(name, again));
        writes.rest = now + pause.unwrap_or_default();
        pause
    }

    /// Whether the Node is not being reconciled, and is either not queued or only queued for a retry.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        !self.is_looked_at && (self.due.is_none() || self.failures > 0)
    }
}

/// The backoff, which doubles after each failure. Each Node's backoff differs a little, so that retries do not come together.
pub(super) fn pause(name: &str, failures: u32) -> Duration {
    let spread = name.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 256;
    let pause = Pauses { first: FIRST_PAUSE, longest: LONGEST_PAUSE }.after(failures);
    pause - pause.mul_f64(f64::from(spread) / 1024.0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn many_failures_do_not_come_back_at_once() {
        let pauses: BTreeSet<Duration> =
            (0..1000).map(|number| pause(&format!("i-{number:017x}"), 4)).collect();
        assert!(pauses.len() > 100, "{}", pauses.len());
    }

    #[test]
    fn a_rest_after_writes_outlasts_success_and_a_wake() {
        let (mut entry, now) = (QueueEntry::default(), Instant::now());
        (0..WRITES_AT_ONCE).for_each(|_| assert_eq!(entry.written("a", now), None));
        let rest = entry.written("a", now);
        entry.done();
        entry.wake(now);
        assert_eq!(entry.not_before(), rest.map(|rest| now + rest));
    }

    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<QueueEntry>() <= 112, "{} bytes for each Node", size_of::<QueueEntry>());
    }
}
