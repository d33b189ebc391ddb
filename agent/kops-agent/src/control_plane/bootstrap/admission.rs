//! How many machines are verified at a time, and who is next.
//!
//! Each origin has a queue of its own, and they take turns: a flood from a few addresses waits behind itself, not before
//! others. Who has waited too long is told so, and comes again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::addresses::Origin;
use super::verifier::{Answer, Refusal};

/// How much is let in.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Verifications at the same time.
    pub at_once: usize,
    /// Of one origin.
    pub at_once_of_one: usize,
    /// Who may wait of one origin.
    pub waiting_of_one: usize,
    /// Who may wait in all.
    pub waiting: usize,
    /// For how long.
    pub patience: Duration,
}

impl Default for Limits {
    /// A machine waits 15 seconds for its answer, and must be able to come again.
    fn default() -> Limits {
        Limits {
            at_once: 64,
            at_once_of_one: 16,
            waiting_of_one: 64,
            waiting: 4096,
            patience: Duration::from_secs(6),
        }
    }
}

/// Lets in.
pub struct Admission {
    limits: Limits,
    state: Mutex<State>,
    depth: Gauge,
}

#[derive(Default)]
struct State {
    running: usize,
    running_of: BTreeMap<Origin, usize>,
    queues: BTreeMap<Origin, VecDeque<oneshot::Sender<()>>>,
    /// The origins that have a queue, in the order of their turns.
    turns: VecDeque<Origin>,
    waiting: usize,
}

/// Who holds this is let in.
pub struct Admitted {
    admission: Arc<Admission>,
    origin: Origin,
}

impl Admission {
    /// Lets nobody wait yet. `depth` counts who does.
    pub fn new(limits: Limits, depth: Gauge) -> Arc<Admission> {
        Arc::new(Admission { limits, state: Mutex::default(), depth })
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// Too many wait, or the turn does not come in time.
    pub async fn enter(self: &Arc<Self>, origin: Origin) -> Result<Admitted, Refusal> {
        let busy =
            |reason, problem: &str| Refusal { answer: Answer::Busy, reason, message: problem.to_owned() };
        let mut turn = {
            let mut state = self.lock();
            if state.waiting == 0 && state.has_room(origin, &self.limits) {
                state.start(origin);
                return Ok(Admitted { admission: self.clone(), origin });
            }
            let of_this = state.queues.get(&origin).map_or(0, VecDeque::len);
            if of_this >= self.limits.waiting_of_one || state.waiting >= self.limits.waiting {
                return Err(busy("QueueFull", "too many requests wait already"));
            }
            let (sender, turn) = oneshot::channel();
            state.wait(origin, sender);
            // There may be room for this origin, and those before it are all of others that have none.
            state.next(&self.limits);
            self.depth.set(state.waiting as i64);
            turn
        };
        match timeout(self.limits.patience, &mut turn).await {
            Ok(Ok(())) => Ok(Admitted { admission: self.clone(), origin }),
            _ => {
                turn.close();
                // It may have come in this very moment: then it is given back.
                if turn.try_recv().is_ok() {
                    drop(Admitted { admission: self.clone(), origin });
                }
                Err(busy("QueuedTooLong", "its turn did not come in time"))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut state = self.admission.lock();
        state.stop(self.origin);
        state.next(&self.admission.limits);
        self.admission.depth.set(state.waiting as i64);
    }
}

impl State {
    fn has_room(&self, origin: Origin, limits: &Limits) -> bool {
        self.running < limits.at_once
            && self.running_of.get(&origin).copied().unwrap_or(0) < limits.at_once_of_one
    }

    fn start(&mut self, origin: Origin) {
        self.running += 1;
        *self.running_of.entry(origin).or_default() += 1;
    }

    fn stop(&mut self, origin: Origin) {
        self.running -= 1;
        match self.running_of.get_mut(&origin) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.running_of.remove(&origin)),
        }
    }

    fn wait(&mut self, origin: Origin, sender: oneshot::Sender<()>) {
        let queue = self.queues.entry(origin).or_default();
        if queue.is_empty() {
            self.turns.push_back(origin);
        }
        queue.push_back(sender);
        self.waiting += 1;
    }

    /// Lets in whoever can be, one origin after the other.
    fn next(&mut self, limits: &Limits) {
        for _ in 0..self.turns.len() {
            if self.running >= limits.at_once {
                return;
            }
            let Some(origin) = self.turns.pop_front() else { return };
            let may_start = self.has_room(origin, limits);
            let queue = self.queues.entry(origin).or_default();
            let mut has_started = false;
            while may_start && !has_started {
                let Some(waiting) = queue.pop_front() else { break };
                self.waiting -= 1;
                // Who no longer waits leaves the turn to the next.
                has_started = waiting.send(()).is_ok();
            }
            match queue.is_empty() {
                true => drop(self.queues.remove(&origin)),
                false => self.turns.push_back(origin),
            }
            if has_started {
                self.start(origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures_util::FutureExt as _;

    use super::*;

    const LIMITS: Limits = Limits {
        at_once: 4,
        at_once_of_one: 3,
        waiting_of_one: 2,
        waiting: 8,
        patience: Duration::from_secs(6),
    };

    fn origin(last: u8) -> Origin {
        Origin::of([10, 0, 0, last].into())
    }

    #[tokio::test]
    async fn a_flood_waits_behind_itself() {
        let admission = Admission::new(LIMITS, Gauge::default());
        let mut flood = Vec::new();
        for _ in 0..3 {
            flood.push(admission.enter(origin(1)).await.unwrap());
        }
        let mut waiting = [Box::pin(admission.enter(origin(1))), Box::pin(admission.enter(origin(1)))];
        for waiting in &mut waiting {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        assert_eq!(admission.enter(origin(1)).await.err().unwrap().reason, "QueueFull");
        // Another finds the place that no single origin gets.
        let honest = admission.enter(origin(2)).now_or_never().unwrap().unwrap();
        let mut second = Box::pin(admission.enter(origin(2)));
        assert!(second.as_mut().now_or_never().is_none());
        // The flood's turn comes first, then the other's.
        flood.pop();
        assert!(waiting[0].as_mut().now_or_never().is_some_and(|turn| turn.is_ok()));
        drop(honest);
        assert!(second.as_mut().now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn who_waits_too_long_is_told_and_leaves_no_trace() {
        let limits = Limits { at_once: 1, patience: Duration::from_millis(20), ..LIMITS };
        let admission = Admission::new(limits, Gauge::default());
        let first = admission.enter(origin(1)).await.unwrap();
        let refusal = admission.enter(origin(2)).await.err().unwrap();
        assert_eq!((refusal.answer, refusal.reason), (Answer::Busy, "QueuedTooLong"));
        drop(first);
        assert!(admission.enter(origin(3)).now_or_never().unwrap().is_ok());
        let state = admission.lock();
        assert_eq!((state.running, state.waiting), (0, 0));
        assert!(state.running_of.is_empty() && state.queues.is_empty() && state.turns.is_empty());
    }
}
