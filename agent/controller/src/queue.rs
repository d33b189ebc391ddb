//! Which Nodes are to be looked at, and when: for the controller of nodes.
//!
//! A Node is looked at by one at a time; what changes meanwhile has it looked at once more. One that fails is looked
//! at again later and later, each at its own moment, so that a thousand failures at once do not come back at once; and
//! no sooner because it changes, for a machine that is not believed can change its Node as often as it likes. One whose
//! labels are written again and again is left alone for longer and longer too: somebody else undoes what we write. Those
//! whose cloud does not answer wait together ([`Outage`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::outage::{Outage, Pauses};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10 * 60);
/// How often a Node is written to without a pause, as when it is new and its group is being edited.
const WRITES_AT_ONCE: u32 = 4;
/// After so long without a write, the earlier ones are forgotten. More than the longest pause between two.
const WRITES_FORGOTTEN: Duration = Duration::from_secs(30 * 60);

/// The Nodes that wait, by name.
#[derive(Debug, Default)]
pub struct Queue {
    due: BTreeMap<String, Instant>,
    working: BTreeSet<String>,
    /// Those that were woken while somebody looked at them.
    woken: BTreeSet<String>,
    failures: BTreeMap<String, u32>,
    /// Until when those that failed are left alone.
    pauses: BTreeMap<String, Instant>,
    writes: BTreeMap<String, Writes>,
    outage: Outage,
}

/// The writes to a Node of late.
#[derive(Debug)]
struct Writes {
    times: u32,
    last: Instant,
    /// Until when the Node is left alone, whatever happens to it.
    rest: Instant,
}

impl Queue {
    /// With these pauses while the cloud does not answer.
    pub fn pausing(pauses: Pauses) -> Queue {
        Queue { outage: Outage::pausing(pauses), ..Queue::default() }
    }

    /// A Node changed: it is looked at as soon as who looks at it is done, and its pause after a failure is over, or the cloud
    /// answers again.
    pub fn changed(&mut self, name: &str, now: Instant) {
        if self.outage.holds(name) {
            return;
        }
        let due = self.due.entry(name.to_owned()).or_insert(now);
        *due = now.min(*due);
    }

    /// Has a Node looked at then, or as soon as who looks at it is done, pause or not: what it failed for may be over.
    pub fn wake(&mut self, name: &str, at: Instant) {
        self.pauses.remove(name);
        self.outage.release(name);
        if self.working.contains(name) {
            self.woken.insert(name.to_owned());
        }
        self.changed(name, at);
    }

    /// The Nodes that are due and that nobody looks at; from now on somebody does.
    pub fn take(&mut self, now: Instant) -> Vec<String> {
        let mut ready: Vec<String> =
            self.waiting().filter(|(_, due)| *due <= now).map(|(name, _)| name.clone()).collect();
        ready.extend(self.outage.take(now));
        for name in &ready {
            self.due.remove(name);
            self.working.insert(name.clone());
        }
        ready
    }

    /// A Node was looked at and is as it should be.
    pub fn done(&mut self, name: &str) {
        self.working.remove(name);
        self.woken.remove(name);
        self.failures.remove(name);
        self.pauses.remove(name);
    }

    /// A Node was written to. If it was so again and again, it is left alone for the pause that this returns.
    pub fn written(&mut self, name: &str, now: Instant) -> Option<Duration> {
        let first = Writes { times: 0, last: now, rest: now };
        let writes = self.writes.entry(name.to_owned()).or_insert(first);
        if now.saturating_duration_since(writes.last) > WRITES_FORGOTTEN {
            writes.times = 0;
        }
        writes.times = writes.times.saturating_add(1);
        writes.last = now;
        let pause = writes.times.checked_sub(WRITES_AT_ONCE + 1).map(|again| pause(name, again));
        writes.rest = now + pause.unwrap_or_default();
        pause
    }

    /// A Node could not be dealt with. It is looked at again after a pause, which this returns, or at once if it was woken
    /// meanwhile.
    pub fn failed(&mut self, name: &str, now: Instant) -> Duration {
        self.working.remove(name);
        let failures = self.failures.entry(name.to_owned()).or_default();
        let pause = pause(name, *failures);
        *failures = failures.saturating_add(1);
        if self.woken.remove(name) {
            return Duration::ZERO;
        }
        self.pauses.insert(name.to_owned(), now + pause);
        self.changed(name, now + pause);
        pause
    }

    /// The cloud did not answer for a Node. It is looked at again when the cloud does; after a pause, if it is the first one or
    /// the one that was looked at to see whether the cloud does, which this returns.
    pub fn unanswered(&mut self, name: &str, now: Instant) -> Option<Duration> {
        self.working.remove(name);
        self.woken.remove(name);
        self.due.remove(name);
        self.outage.failed(name, now)
    }

    /// A Node was looked at, and it was not for the cloud if it could not be dealt with: if the others waited for that, they are
    /// due now. How many they are.
    pub fn answered(&mut self, name: &str, now: Instant) -> usize {
        let released = self.outage.answered(name);
        for name in &released {
            self.changed(name, now);
        }
        released.len()
    }

    /// The outage of the cloud.
    pub fn outage(&self) -> &Outage {
        &self.outage
    }

    /// A Node is gone that was looked at, or was to be.
    pub fn gone(&mut self, name: &str, now: Instant) {
        self.done(name);
        self.outage.gone(name, now);
        self.forget(name);
    }

    /// Nobody looks at a Node any more, and nothing of it is remembered.
    pub fn forget(&mut self, name: &str) {
        self.due.remove(name);
        self.failures.remove(name);
        self.pauses.remove(name);
        self.writes.remove(name);
        self.outage.release(name);
    }

    /// When the next one is due that nobody looks at.
    pub fn next_due(&self) -> Option<Instant> {
        self.waiting().map(|(_, due)| due).chain(self.outage.next()).min()
    }

    /// How many wait that are due.
    pub fn depth(&self, now: Instant) -> usize {
        self.due.iter().filter(|(name, due)| self.not_before(name, **due) <= now).count()
    }

    /// Whether nobody is looked at and nobody waits, other than after a failure.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.working.is_empty()
            && self.outage.len() == 0
            && self.due.keys().all(|name| self.failures.contains_key(name))
    }

    /// Those that nobody looks at, and from when on somebody may.
    fn waiting(&self) -> impl Iterator<Item = (&String, Instant)> {
        let idle = self.due.iter().filter(|(name, _)| !self.working.contains(*name));
        idle.map(|(name, due)| (name, self.not_before(name, *due)))
    }

    fn not_before(&self, name: &str, due: Instant) -> Instant {
        let pause = self.pauses.get(name).copied();
        let rest = self.writes.get(name).map(|writes| writes.rest);
        [pause, rest].into_iter().flatten().fold(due, Instant::max)
    }
}

/// Twice as long after each failure, and for each Node a little different.
fn pause(name: &str, failures: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(2u32.saturating_pow(failures.min(16)));
    let spread = name.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 256;
    let pause = doubled.min(LONGEST_PAUSE);
    pause - pause.mul_f64(f64::from(spread) / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_looked_at_by_two_and_no_change_is_missed() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.changed("a", now);
        queue.changed("a", now);
        assert_eq!(queue.take(now), ["a"]);
        queue.changed("a", now);
        assert_eq!(queue.take(now), [""; 0]);
        assert_eq!(queue.next_due(), None, "nothing to wake up for");
        assert_eq!(queue.depth(now), 1);
        queue.done("a");
        assert_eq!(queue.take(now), ["a"]);
        queue.done("a");
        assert!(queue.is_idle());
    }

    #[test]
    fn failures_come_back_later_and_later() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        queue.changed("a", now);
        let mut pauses = Vec::new();
        for _ in 0..14 {
            assert_eq!(queue.take(now), ["a"]);
            let pause = queue.failed("a", now);
            assert_eq!(queue.next_due(), Some(now + pause));
            assert_eq!(queue.take(now), [""; 0]);
            now += pause;
            pauses.push(pause);
        }
        assert!(pauses[0] <= Duration::from_secs(1) && pauses[0] >= Duration::from_millis(700));
        assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(pauses[12], pauses[13]);
        assert!(pauses[13] <= LONGEST_PAUSE);
        assert!(queue.is_idle());
        assert_eq!(queue.take(now), ["a"]);
        queue.done("a");
        assert!(queue.next_due().is_none() && queue.failures.is_empty());
    }

    #[test]
    fn an_hour_without_the_cloud_costs_few_looks_and_is_over_a_minute_after() {
        const NODES: usize = 5000;
        let (mut queue, begun) = (Queue::default(), Instant::now());
        (0..NODES).for_each(|number| queue.changed(&format!("i-{number:017x}"), begun));
        let (mut now, mut looks, back) = (begun, 0, begun + Duration::from_secs(60 * 60));
        while now < back {
            for name in queue.take(now) {
                queue.unanswered(&name, now);
                queue.changed(&name, now);
                looks += 1;
            }
            now = queue.next_due().expect("the cloud is asked again");
        }
        // Each once, and then one of them after 1, 2, 4, … seconds, and after each minute.
        assert_eq!(looks - NODES, 64);
        let (mut dealt_with, mut rounds) = (0, 0);
        while let Some(due) = queue.next_due() {
            now = due;
            rounds += 1;
            for name in queue.take(now) {
                queue.done(&name);
                queue.answered(&name, now);
                dealt_with += 1;
            }
        }
        assert_eq!((dealt_with, rounds), (NODES, 2), "one, and then all together");
        assert!(now - back <= Duration::from_secs(60), "the last one waits for {:?}", now - back);
    }

    #[test]
    fn what_failed_is_left_alone_however_often_it_changes() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.changed("a", now);
        queue.take(now);
        queue.changed("a", now);
        let pause = queue.failed("a", now);
        queue.changed("a", now);
        assert_eq!(queue.take(now), [""; 0]);
        assert_eq!((queue.next_due(), queue.depth(now)), (Some(now + pause), 0));
        assert_eq!(queue.take(now + pause), ["a"]);
        queue.changed("a", now + pause);
        queue.done("a");
        assert_eq!(queue.take(now + pause), ["a"], "it changed while it was looked at");
    }

    #[test]
    fn who_is_woken_does_not_wait_for_the_end_of_a_pause() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.changed("a", now);
        queue.take(now);
        let first = queue.failed("a", now);
        queue.wake("a", now);
        assert_eq!(queue.take(now), ["a"]);
        assert!(queue.failed("a", now) > first, "its failures are not forgotten");
        queue.wake("a", now);
        queue.take(now);
        queue.wake("a", now);
        assert_eq!(queue.failed("a", now), Duration::ZERO);
        assert_eq!(queue.take(now), ["a"], "what it failed for may have been over already");
        queue.forget("a");
        queue.done("a");
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn what_somebody_undoes_is_written_again_later_and_later() {
        let (mut queue, begun) = (Queue::default(), Instant::now());
        let (mut now, mut writes) = (begun, 0);
        queue.changed("a", now);
        while now < begun + Duration::from_secs(60 * 60) {
            assert_eq!(queue.take(now), ["a"]);
            let pause = queue.written("a", now);
            writes += 1;
            assert_eq!(pause.is_some(), writes > WRITES_AT_ONCE);
            queue.done("a");
            // It is undone at once, and even what ends a failure's pause does not end this one.
            queue.changed("a", now);
            queue.wake("a", now);
            now = queue.next_due().expect("it is due");
        }
        assert!((10..=20).contains(&writes), "{writes} writes in an hour");

        // What is not undone may be written again some other day.
        now += WRITES_FORGOTTEN + Duration::from_secs(1);
        queue.take(now);
        assert_eq!(queue.written("a", now), None);
    }

    #[test]
    fn nothing_is_kept_of_what_is_gone() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.changed("a", now);
        queue.take(now);
        queue.forget("a");
        queue.written("a", now);
        queue.failed("a", now);
        queue.gone("a", now);
        assert!(queue.writes.is_empty() && queue.failures.is_empty() && queue.pauses.is_empty());
        assert!(queue.due.is_empty() && queue.working.is_empty() && queue.woken.is_empty());
    }

    #[test]
    fn many_failures_do_not_come_back_at_once() {
        let pauses: BTreeSet<Duration> =
            (0..1000).map(|number| pause(&format!("i-{number:017x}"), 4)).collect();
        assert!(pauses.len() > 100, "{}", pauses.len());
    }
}
