//! How many connections there are, in all and of one origin.
//!
//! Who has the most gives way where there are too many: nobody can keep others out by being first.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::oneshot;

use super::addresses::Origin;

/// The connections that are open.
pub struct Connections {
    most: usize,
    most_of_one: usize,
    state: Mutex<State>,
    open: Gauge,
}

#[derive(Default)]
struct State {
    /// What ends a connection by being dropped; the oldest of an origin first.
    of: BTreeMap<Origin, BTreeMap<u64, oneshot::Sender<Infallible>>>,
    total: usize,
    next: u64,
}

/// One connection, for as long as this lives.
pub struct Slot {
    connections: Arc<Connections>,
    origin: Origin,
    number: u64,
}

impl Connections {
    /// None yet, and so many at most.
    pub fn new(most: usize, most_of_one: usize, open: Gauge) -> Arc<Connections> {
        Arc::new(Connections { most, most_of_one, state: Mutex::default(), open })
    }

    /// Makes room for a connection, and gives what tells it to end early; `None` if it is one too many.
    pub fn open(self: &Arc<Connections>, origin: Origin) -> Option<(Slot, oneshot::Receiver<Infallible>)> {
        let mut state = self.lock();
        let of_this = state.of.get(&origin).map_or(0, BTreeMap::len);
        if of_this >= self.most_of_one {
            return None;
        }
        if state.total >= self.most {
            let largest = state.of.iter().max_by_key(|(_, connections)| connections.len());
            let (largest, count) = largest.map(|(origin, connections)| (*origin, connections.len()))?;
            if count <= of_this + 1 {
                return None;
            }
            let oldest = state.of.get(&largest).and_then(|connections| connections.keys().next().copied())?;
            state.close(largest, oldest);
        }
        let number = state.next;
        state.next += 1;
        state.total += 1;
        let (sender, ends) = oneshot::channel();
        state.of.entry(origin).or_default().insert(number, sender);
        self.open.set(state.total as i64);
        Some((Slot { connections: self.clone(), origin, number }, ends))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
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

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.connections.lock();
        state.close(self.origin, self.number);
        self.connections.open.set(state.total as i64);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn origin(last: u8) -> Origin {
        Origin::of([10, 0, 0, last].into())
    }

    #[test]
    fn one_origin_has_its_share_and_no_more() {
        let connections = Connections::new(4, 2, Gauge::default());
        let first = connections.open(origin(1)).unwrap();
        let _second = connections.open(origin(1)).unwrap();
        assert!(connections.open(origin(1)).is_none());
        drop(first);
        assert!(connections.open(origin(1)).is_some());
    }

    #[test]
    fn who_has_the_most_gives_way() {
        let connections = Connections::new(3, 3, Gauge::default());
        let mut flood: Vec<_> = (0..3).map(|_| connections.open(origin(1)).unwrap()).collect();
        let honest = connections.open(origin(2)).unwrap();
        assert!(flood[0].1.try_recv() == Err(oneshot::error::TryRecvError::Closed), "the oldest is ended");
        assert!(flood[1].1.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        let third = connections.open(origin(3)).unwrap();
        assert!(connections.open(origin(4)).is_none());
        drop((flood, honest, third));
        assert_eq!(connections.lock().total, 0);
        assert!(connections.lock().of.is_empty());
    }
}
