//! How many connections there are, in all and of one origin.
//!
//! Who has the most gives way where there are too many, and of an origin that has its share, the connection that has been
//! silent for longest: nobody can keep others out by being first.
//!
//! Somebody who shares a machine's address, and connects all the time, so has the machine's connections ended that have
//! not asked yet. That takes as many connections as there may be of one origin in the time of a handshake, some
//! thousands a second; where newcomers are refused, it takes as many in the time that the server waits for whoever is
//! silent, some dozens a second, to keep them all out. Who has asked is never cut off for somebody of the same origin, and
//! others than that origin notice neither.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::oneshot;

use super::addresses::Origin;

/// The connections that are open.
pub struct Connections {
    most: usize,
    most_of_one: usize,
    state: Mutex<State>,
    open: Gauge,
    refused: Counter,
}

#[derive(Default)]
struct State {
    /// The oldest of an origin first.
    of: BTreeMap<Origin, BTreeMap<u64, Connection>>,
    total: usize,
    next: u64,
}

struct Connection {
    /// Ends it by being dropped.
    _ends: oneshot::Sender<Infallible>,
    has_asked: bool,
}

/// One connection, for as long as this lives.
pub struct Slot {
    connections: Arc<Connections>,
    origin: Origin,
    number: u64,
}

impl Connections {
    /// None yet, and so many at most. `open` counts those that there are, `refused` those that were turned away,
    /// or ended, because there were too many.
    pub fn new(most: usize, most_of_one: usize, open: Gauge, refused: Counter) -> Arc<Connections> {
        Arc::new(Connections { most, most_of_one, state: Mutex::default(), open, refused })
    }

    /// Makes room for a connection, and gives what tells it to end early; `None` if it is one too many.
    pub fn open(self: &Arc<Connections>, origin: Origin) -> Option<(Slot, oneshot::Receiver<Infallible>)> {
        let mut state = self.lock();
        if state.is_too_much(self, origin) {
            self.refused.inc();
            let (of, number) = state.who_gives_way(self, origin)?;
            state.close(of, number);
        }
        let number = state.next;
        state.next += 1;
        state.total += 1;
        let (sender, ends) = oneshot::channel();
        let connection = Connection { _ends: sender, has_asked: false };
        state.of.entry(origin).or_default().insert(number, connection);
        self.open.set(state.total as i64);
        Some((Slot { connections: self.clone(), origin, number }, ends))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&self, origin: Origin) -> usize {
        self.of.get(&origin).map_or(0, BTreeMap::len)
    }

    fn is_too_much(&self, limits: &Connections, origin: Origin) -> bool {
        self.total >= limits.most || self.count(origin) >= limits.most_of_one
    }

    /// Which connection is ended for one more of an origin; `None` if it is the newcomer who is one too many.
    fn who_gives_way(&self, limits: &Connections, origin: Origin) -> Option<(Origin, u64)> {
        if self.count(origin) >= limits.most_of_one {
            return Some((origin, self.oldest_silent(origin)?));
        }
        let (largest, connections) = self.of.iter().max_by_key(|(_, connections)| connections.len())?;
        if connections.len() <= self.count(origin) + 1 {
            return None;
        }
        let oldest = || connections.keys().next().copied();
        Some((*largest, self.oldest_silent(*largest).or_else(oldest)?))
    }

    fn oldest_silent(&self, origin: Origin) -> Option<u64> {
        let mut connections = self.of.get(&origin)?.iter();
        connections.find(|(_, connection)| !connection.has_asked).map(|(number, _)| *number)
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
    /// Notes that the whole request is there.
    pub fn has_asked(&self) {
        let mut state = self.connections.lock();
        let connections = state.of.get_mut(&self.origin);
        if let Some(connection) = connections.and_then(|connections| connections.get_mut(&self.number)) {
            connection.has_asked = true;
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

    type Open = (Slot, oneshot::Receiver<Infallible>);

    fn origin(last: u8) -> Origin {
        Origin::of([10, 0, 0, last].into())
    }

    fn of(most: usize, most_of_one: usize) -> Arc<Connections> {
        Connections::new(most, most_of_one, Gauge::default(), Counter::default())
    }

    fn is_ended((_, ends): &mut Open) -> bool {
        ends.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn one_origin_has_its_share_and_who_is_silent_gives_way_in_it() {
        let connections = of(9, 3);
        let mut other = connections.open(origin(2)).unwrap();
        let mut asking = connections.open(origin(1)).unwrap();
        asking.0.has_asked();
        let mut oldest = connections.open(origin(1)).unwrap();
        let mut later = connections.open(origin(1)).unwrap();
        let mut newcomer = connections.open(origin(1)).unwrap();
        assert!(is_ended(&mut oldest), "the oldest of those that have not asked");
        assert!(!is_ended(&mut asking) && !is_ended(&mut later) && !is_ended(&mut newcomer));
        assert_eq!(connections.lock().count(origin(1)), 3);

        later.0.has_asked();
        newcomer.0.has_asked();
        assert!(connections.open(origin(1)).is_none(), "all are being answered");
        assert!(!is_ended(&mut other), "another has nothing to do with it");
        assert_eq!(connections.refused.get(), 2);
        drop(asking);
        assert!(connections.open(origin(1)).is_some());
    }

    #[test]
    fn who_has_the_most_gives_way() {
        let connections = of(3, 3);
        let mut flood: Vec<_> = (0..3).map(|_| connections.open(origin(1)).unwrap()).collect();
        flood[0].0.has_asked();
        let honest = connections.open(origin(2)).unwrap();
        assert!(is_ended(&mut flood[1]), "the oldest that has not asked is ended");
        assert!(!is_ended(&mut flood[0]) && !is_ended(&mut flood[2]));
        let third = connections.open(origin(3)).unwrap();
        assert!(connections.open(origin(4)).is_none());
        drop((flood, honest, third));
        assert_eq!(connections.lock().total, 0);
        assert!(connections.lock().of.is_empty());
    }
}
