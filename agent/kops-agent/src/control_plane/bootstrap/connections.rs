//! How many connections there are, in all and of one origin.
//!
//! Who has the most gives way where there are too many: nobody can keep others out by being first. That alone would not
//! help against many who have one each, so who has wasted a connection shares a small part of them with others who
//! have, for a while; the rest is for those of whom nothing is known, and for those who were served.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::addresses::Origin;
use super::wasted::Wasted;

/// The part of the connections for origins that have wasted some: one in so many.
const PART_OF_WASTEFUL: usize = 8;

/// The connections that are open.
pub struct Connections {
    most_of_one: usize,
    state: Mutex<State>,
    open: Gauge,
}

/// What came of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Somebody was given what they came for.
    Served,
    /// Nobody can be blamed that it was in vain: it was too much for us, say.
    InVain,
    /// There was no request in time, or none that could be granted.
    Wasted,
}

/// In which part a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Usual,
    Wasteful,
}

struct State {
    usual: Share,
    wasteful: Share,
    wasted: Wasted,
    next: u64,
}

/// Some of the connections.
struct Share {
    most: usize,
    /// What ends a connection by being dropped; the oldest of an origin first.
    of: BTreeMap<Origin, BTreeMap<u64, oneshot::Sender<Infallible>>>,
    total: usize,
}

/// One connection, for as long as this lives.
pub struct Slot {
    connections: Arc<Connections>,
    origin: Origin,
    part: Part,
    number: u64,
}

impl Connections {
    /// None yet, and so many at most.
    pub fn new(most: usize, most_of_one: usize, open: Gauge) -> Arc<Connections> {
        let of_wasteful = most / PART_OF_WASTEFUL;
        let state = State {
            usual: Share::of(most - of_wasteful),
            wasteful: Share::of(of_wasteful),
            wasted: Wasted::default(),
            next: 0,
        };
        Arc::new(Connections { most_of_one, state: Mutex::new(state), open })
    }

    /// Makes room for a connection, and gives what tells it to end early; `None` if it is one too many.
    pub fn open(
        self: &Arc<Connections>,
        origin: Origin,
        now: Instant,
    ) -> Option<(Slot, oneshot::Receiver<Infallible>)> {
        let mut state = self.lock();
        let part = if state.wasted.has(origin, now) { Part::Wasteful } else { Part::Usual };
        let number = state.next;
        let ends = state.share(part).open(origin, number, self.most_of_one)?;
        state.next += 1;
        self.open.set(state.total());
        Some((Slot { connections: self.clone(), origin, part, number }, ends))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn share(&mut self, part: Part) -> &mut Share {
        match part {
            Part::Usual => &mut self.usual,
            Part::Wasteful => &mut self.wasteful,
        }
    }

    fn total(&self) -> i64 {
        (self.usual.total + self.wasteful.total) as i64
    }
}

impl Share {
    fn of(most: usize) -> Share {
        Share { most, of: BTreeMap::new(), total: 0 }
    }

    fn open(
        &mut self,
        origin: Origin,
        number: u64,
        most_of_one: usize,
    ) -> Option<oneshot::Receiver<Infallible>> {
        let of_this = self.of.get(&origin).map_or(0, BTreeMap::len);
        if of_this >= most_of_one {
            return None;
        }
        if self.total >= self.most {
            let largest = self.of.iter().max_by_key(|(_, connections)| connections.len());
            let (largest, count) = largest.map(|(origin, connections)| (*origin, connections.len()))?;
            if count <= of_this + 1 {
                return None;
            }
            let oldest = self.of.get(&largest).and_then(|connections| connections.keys().next().copied())?;
            self.close(largest, oldest);
        }
        self.total += 1;
        let (sender, ends) = oneshot::channel();
        self.of.entry(origin).or_default().insert(number, sender);
        Some(ends)
    }

    fn close(&mut self, origin: Origin, number: u64) {
        let Some(connections) = self.of.get_mut(&origin) else { return };
        if connections.remove(&number).is_some() {
            self.total -= 1;
        }
        if connections.is_empty() {
            self.of.remove(&origin);
        }
    }
}

impl Slot {
    /// Remembers what came of the connection. Without this, nothing is held against its origin.
    pub fn remember(&self, outcome: Outcome, now: Instant) {
        let mut state = self.connections.lock();
        match outcome {
            Outcome::Served => state.wasted.forgive(self.origin),
            Outcome::InVain => {}
            Outcome::Wasted => state.wasted.add(self.origin, now),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.connections.lock();
        let (origin, number) = (self.origin, self.number);
        state.share(self.part).close(origin, number);
        self.connections.open.set(state.total());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn origin(last: u8) -> Origin {
        Origin::of([10, 0, 0, last].into())
    }

    fn open(connections: &Arc<Connections>, last: u8) -> Option<(Slot, oneshot::Receiver<Infallible>)> {
        connections.open(origin(last), Instant::now())
    }

    #[test]
    fn one_origin_has_its_share_and_no_more() {
        let connections = Connections::new(4, 2, Gauge::default());
        let first = open(&connections, 1).unwrap();
        let _second = open(&connections, 1).unwrap();
        assert!(open(&connections, 1).is_none());
        drop(first);
        assert!(open(&connections, 1).is_some());
    }

    #[test]
    fn who_has_the_most_gives_way() {
        let connections = Connections::new(3, 3, Gauge::default());
        let mut flood: Vec<_> = (0..3).map(|_| open(&connections, 1).unwrap()).collect();
        let honest = open(&connections, 2).unwrap();
        assert!(flood[0].1.try_recv() == Err(oneshot::error::TryRecvError::Closed), "the oldest is ended");
        assert!(flood[1].1.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        let third = open(&connections, 3).unwrap();
        assert!(open(&connections, 4).is_none());
        drop((flood, honest, third));
        assert_eq!(connections.lock().total(), 0);
        assert!(connections.lock().usual.of.is_empty());
    }

    #[test]
    fn who_has_wasted_one_shares_a_part_with_others_who_have() {
        let connections = Connections::new(16, 16, Gauge::default());
        let waste = |last| open(&connections, last).unwrap().0.remember(Outcome::Wasted, Instant::now());
        (1..=20).for_each(waste);
        let liars: Vec<_> = (1..=20).filter_map(|last| open(&connections, last)).collect();
        assert_eq!(liars.len(), 2);
        let others: Vec<_> = (21..=40).filter_map(|last| open(&connections, last)).collect();
        assert_eq!(others.len(), 14);
        drop((liars, others));
        assert_eq!(connections.lock().total(), 0);
    }

    #[test]
    fn who_is_served_is_as_good_as_new_and_who_came_in_vain_no_worse() {
        let connections = Connections::new(16, 16, Gauge::default());
        let slot = open(&connections, 1).unwrap().0;
        slot.remember(Outcome::Wasted, Instant::now());
        assert_eq!(open(&connections, 1).unwrap().0.part, Part::Wasteful);
        slot.remember(Outcome::InVain, Instant::now());
        assert_eq!(open(&connections, 1).unwrap().0.part, Part::Wasteful);
        slot.remember(Outcome::Served, Instant::now());
        assert_eq!(open(&connections, 1).unwrap().0.part, Part::Usual);
        open(&connections, 2).unwrap().0.remember(Outcome::InVain, Instant::now());
        assert_eq!(open(&connections, 2).unwrap().0.part, Part::Usual);
    }
}
