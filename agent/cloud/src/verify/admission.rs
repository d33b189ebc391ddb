//! Limits how many machines are verified at a time, and decides which machine is next.
//!
//! Each origin has its own queue, and the origins take turns: a flood from a few addresses delays only itself. If all requests
//! come from a load balancer, the origin is the claimed machine, and has less room. A request that has waited too long is
//! rejected, and the machine retries.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Answer, Origin, Refusal};

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of concurrent verifications.
    pub at_once: usize,
    pub at_once_of_one: usize,
    /// The maximum number of waiting requests of one origin.
    pub waiting_of_one: usize,
    /// The maximum number of concurrent verifications of an origin with a claimed machine ([`Origin::is_claim`]).
    pub at_once_of_claim: usize,
    /// The maximum number of waiting requests of an origin with a claimed machine ([`Origin::is_claim`]).
    pub waiting_of_claim: usize,
    /// The maximum number of all waiting requests.
    pub waiting: usize,
    pub timeout: Duration,
}

impl Default for Limits {
    /// A machine waits 15 seconds for its answer, and then retries. A request waits at most 6 seconds for its turn, and its verification
    /// has a timeout of 8 seconds: together, this is less than a machine waits.
    fn default() -> Limits {
        Limits {
            at_once: 64,
            at_once_of_one: 16,
            waiting_of_one: 64,
            // Anyone can claim to be a machine, and only the call-back shows whether the machine made the request. A machine immediately
            // denies requests that it did not make, so each false claim frees its place quickly. If the machine does not answer, its
            // requests hold at most this many of the places that all machines behind a load balancer share.
            at_once_of_claim: 4,
            waiting_of_claim: 64,
            waiting: 4096,
            timeout: Duration::from_secs(6),
        }
    }
}

impl Limits {
    fn at_once_of(&self, origin: Origin) -> usize {
        if origin.is_claim() { self.at_once_of_claim } else { self.at_once_of_one }
    }

    fn waiting_of(&self, origin: Origin) -> usize {
        if origin.is_claim() { self.waiting_of_claim } else { self.waiting_of_one }
    }
}

/// Limits the concurrent verifications. The remaining requests wait, in one queue for each origin.
pub struct Admission {
    limits: Limits,
    state: Mutex<State>,
    depth: Gauge,
}

#[derive(Default)]
struct State {
    running: usize,
    running_of: BTreeMap<Origin, usize>,
    /// The waiting requests of each origin, earliest first, with the senders that announce their turns. No queue is empty.
    queues: BTreeMap<Origin, BTreeMap<u64, oneshot::Sender<()>>>,
    /// The origins that have a queue, in the order of their turns.
    turns: VecDeque<Origin>,
    waiting: usize,
    next_number: u64,
}

/// An admitted request. Dropping this value frees the request's place.
pub struct Admitted {
    _place: Place,
}

/// The place of a request: first in the queue, and after admission among the running requests. A connection may close at the moment when
/// its request is admitted, so dropping this value frees the place in both cases.
struct Place {
    admission: Arc<Admission>,
    origin: Origin,
    number: u64,
}

impl Admission {
    /// Creates an empty queue. The gauge `depth` shows the number of waiting requests.
    pub fn new(limits: Limits, depth: Gauge) -> Arc<Admission> {
        Arc::new(Admission { limits, state: Mutex::default(), depth })
    }

    /// Waits for a turn. The future may be dropped while it waits. Fails if too many requests wait, or if the turn does not come in
    /// time.
    pub async fn enter(self: &Arc<Self>, origin: Origin) -> Result<Admitted, Refusal> {
        let busy =
            |reason, problem: &str| Refusal { answer: Answer::Busy, reason, message: problem.to_owned() };
        let (place, turn) =
            self.queue(origin).ok_or_else(|| busy("QueueFull", "too many requests are waiting"))?;
        match timeout(self.limits.timeout, turn).await {
            Ok(Ok(())) => Ok(Admitted { _place: place }),
            _ => Err(busy("QueuedTooLong", "the request waited too long for its turn")),
        }
    }

    /// Puts a request into the queue. The receiver announces the turn of the request, which may come immediately. `None` if the queue is
    /// full.
    fn queue(self: &Arc<Self>, origin: Origin) -> Option<(Place, oneshot::Receiver<()>)> {
        let mut state = self.state.lock();
        let of_this = state.queues.get(&origin).map_or(0, BTreeMap::len);
        if of_this >= self.limits.waiting_of(origin) || state.waiting >= self.limits.waiting {
            return None;
        }
        let (sender, turn) = oneshot::channel();
        let number = state.wait(origin, sender);
        state.next(&self.limits);
        self.depth.set(state.waiting as i64);
        Some((Place { admission: self.clone(), origin, number }, turn))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock();
        if !state.leave(self.origin, self.number) {
            state.stop(self.origin);
            state.next(&self.admission.limits);
        }
        self.admission.depth.set(state.waiting as i64);
    }
}

impl State {
    fn has_room(&self, origin: Origin, limits: &Limits) -> bool {
        self.running < limits.at_once
            && self.running_of.get(&origin).copied().unwrap_or(0) < limits.at_once_of(origin)
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

    fn wait(&mut self, origin: Origin, sender: oneshot::Sender<()>) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.waiting += 1;
        let queue = self.queues.entry(origin).or_default();
        if queue.is_empty() {
            self.turns.push_back(origin);
        }
        queue.insert(number, sender);
        number
    }

    /// Removes a request from its queue; `false` if its turn has already come.
    fn leave(&mut self, origin: Origin, number: u64) -> bool {
        let Some(queue) = self.queues.get_mut(&origin) else { return false };
        if queue.remove(&number).is_none() {
            return false;
        }
        self.waiting -= 1;
        if queue.is_empty() {
            self.queues.remove(&origin);
            self.turns.retain(|turn| *turn != origin);
        }
        true
    }

    /// Admits as many requests as the limits permit. The origins take turns.
    fn next(&mut self, limits: &Limits) {
        for _ in 0..self.turns.len() {
            if self.running >= limits.at_once {
                return;
            }
            let Some(origin) = self.turns.pop_front() else { return };
            let first = match self.has_room(origin, limits) {
                true => self.queues.get_mut(&origin).and_then(BTreeMap::pop_first),
                false => None,
            };
            if let Some((_, turn)) = first {
                self.waiting -= 1;
                self.start(origin);
                // If the receiver is gone, the waiting request frees its place soon. The freed place then goes to the next request.
                let _ = turn.send(());
            }
            match self.queues.get(&origin).is_none_or(BTreeMap::is_empty) {
                true => drop(self.queues.remove(&origin)),
                false => self.turns.push_back(origin),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits {
        at_once: 4,
        at_once_of_one: 3,
        waiting_of_one: 2,
        at_once_of_claim: 1,
        waiting_of_claim: 1,
        waiting: 8,
        timeout: Duration::from_secs(6),
    };

    fn origin(last: u8) -> Origin {
        Origin::from_address([10, 0, 0, last].into())
    }

    #[tokio::test]
    async fn a_flood_from_one_origin_delays_only_itself() {
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
        // A single origin cannot take the last place, so the second origin gets it.
        let honest = admission.enter(origin(2)).now_or_never().unwrap().unwrap();
        let mut second = Box::pin(admission.enter(origin(2)));
        assert!(second.as_mut().now_or_never().is_none());
        // The first free place goes to the flood, whose turn comes first. The next free place goes to the second origin.
        flood.pop();
        assert!(waiting[0].as_mut().now_or_never().is_some_and(|turn| turn.is_ok()));
        drop(honest);
        assert!(second.as_mut().now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn requests_that_claim_one_machine_delay_only_each_other() {
        let admission = Admission::new(LIMITS, Gauge::default());
        let _first = admission.enter(origin(1).claiming(7.into())).await.unwrap();
        let mut waiting = Box::pin(admission.enter(origin(2).claiming(7.into())));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(admission.enter(origin(3).claiming(7.into())).await.err().unwrap().reason, "QueueFull");
        // The queue of requests that claim machine 7 is full. A request that claims a different machine does not wait, and neither does a
        // request from an address that the cloud lists for machine 7.
        for other in [origin(1).claiming(8.into()), origin(2).claiming_at_its_own(7.into())] {
            assert!(admission.enter(other).now_or_never().is_some_and(|turn| turn.is_ok()));
        }
    }

    #[tokio::test]
    async fn a_request_that_waits_too_long_is_rejected_and_frees_its_place() {
        let limits = Limits { at_once: 1, timeout: Duration::from_millis(20), ..LIMITS };
        let admission = Admission::new(limits, Gauge::default());
        let first = admission.enter(origin(1)).await.unwrap();
        let refusal = admission.enter(origin(2)).await.err().unwrap();
        assert_eq!((refusal.answer, refusal.reason), (Answer::Busy, "QueuedTooLong"));
        drop(first);
        assert!(admission.enter(origin(3)).now_or_never().unwrap().is_ok());
        assert_none_is_left(&admission);
    }

    #[tokio::test]
    async fn the_turn_of_a_closed_connection_passes_to_the_next_request() {
        let admission = Admission::new(Limits { at_once: 1, ..LIMITS }, Gauge::default());
        let first = admission.enter(origin(1)).await.unwrap();
        let mut second = Box::pin(admission.enter(origin(1)));
        assert!(second.as_mut().now_or_never().is_none());
        let mut third = Box::pin(admission.enter(origin(2)));
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        assert_eq!(admission.state.lock().running, 1, "the second has its turn, and has not looked yet");
        drop(second);
        drop(third.as_mut().now_or_never().unwrap().unwrap());
        assert_none_is_left(&admission);
    }

    #[tokio::test]
    async fn a_closed_connection_frees_its_place_in_the_queue() {
        let admission = Admission::new(Limits { at_once: 1, waiting_of_one: 1, ..LIMITS }, Gauge::default());
        let _first = admission.enter(origin(1)).await.unwrap();
        for _ in 0..3 {
            let mut hung_up = Box::pin(admission.enter(origin(1)));
            assert!(hung_up.as_mut().now_or_never().is_none(), "it is let into the queue");
        }
    }

    fn assert_none_is_left(admission: &Admission) {
        let state = admission.state.lock();
        assert_eq!((state.running, state.waiting, admission.depth.get()), (0, 0, 0));
        assert!(state.running_of.is_empty() && state.queues.is_empty() && state.turns.is_empty());
    }

    enum Asker<'a> {
        Waits(BoxFuture<'a, Result<Admitted, Refusal>>),
        Entered { _place: Admitted },
    }

    impl Asker<'_> {
        fn check(self) -> Option<Self> {
            match self {
                Asker::Waits(mut entering) => match entering.as_mut().now_or_never() {
                    None => Some(Asker::Waits(entering)),
                    Some(entered) => entered.ok().map(|place| Asker::Entered { _place: place }),
                },
                entered @ Asker::Entered { .. } => Some(entered),
            }
        }
    }

    /// The events of a test. The number in `Looks` and `Goes` selects one of the requests, modulo their count.
    #[derive(Clone, Debug)]
    enum Event {
        Comes(u8),
        Looks(usize),
        Goes(usize),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            (0u8..4).prop_map(Event::Comes),
            any::<usize>().prop_map(Event::Looks),
            any::<usize>().prop_map(Event::Goes),
        ];
        proptest::collection::vec(event, 0..120)
    }

    proptest! {
        #[test]
        fn no_sequence_of_events_loses_a_place(events in events()) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let _in_it = runtime.enter();
            let admission = Admission::new(LIMITS, Gauge::default());
            let mut askers: Vec<Asker<'_>> = Vec::new();
            for event in events {
                match event {
                    Event::Comes(of) => {
                        let asker = Asker::Waits(Box::pin(admission.enter(origin(of))));
                        askers.extend(asker.check());
                    }
                    Event::Looks(_) | Event::Goes(_) if askers.is_empty() => {}
                    Event::Looks(which) => {
                        let asker = askers.swap_remove(which % askers.len());
                        askers.extend(asker.check());
                    }
                    Event::Goes(which) => drop(askers.swap_remove(which % askers.len())),
                }
                let state = admission.state.lock();
                prop_assert_eq!(state.running + state.waiting, askers.len(), "each is in one place");
                prop_assert!(state.running <= LIMITS.at_once);
                prop_assert!(state.running_of.values().all(|running| *running <= LIMITS.at_once_of_one));
                prop_assert!(state.queues.values().all(|queue| (1..=LIMITS.waiting_of_one).contains(&queue.len())));
                let can_enter = state.queues.keys().any(|origin| state.has_room(*origin, &LIMITS));
                prop_assert!(!can_enter, "a request waits though there is room");
            }
            drop(askers);
            assert_none_is_left(&admission);
        }
    }
}
