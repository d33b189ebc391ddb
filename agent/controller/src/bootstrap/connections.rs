//! Limits the connections, in total and per origin.
//!
//! If all connections are in use, the origin with the most connections loses one. If an origin has used up its share, its connection
//! that has been silent for longest gives way to a new one. So early connections keep no other origin out.
//!
//! This does not stop many origins with one connection each. So an origin gets a penalty if its connection had no
//! request, or no request that could be granted. All origins with a penalty share a small part of the connections until
//! the penalty ends. The rest is for origins without a penalty. A granted request lifts the penalty.
//!
//! If a load balancer connects for machines, its address does not tell the machines apart. Such an address gets no penalty, and may
//! have half of the connections; its oldest silent connection gives way. This is decided per connection, because machines beside a
//! load balancer connect from their own addresses.
//!
//! A peer that shares a machine's address can open connections without a pause, and so end the machine's connections that have not
//! sent a request yet. To do that, the peer must open an origin's full share of connections within the time of one handshake: some
//! thousands a second. If the server rejected new connections instead, some dozens a second would keep out the machine: an origin's
//! full share per timeout of a silent connection. A connection that has sent its request never ends for another connection of its
//! origin. Other origins are not affected at all.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::penalties::Penalties;
use kops_agent_cloud::verify::{Origin, Peers};

/// All penalized origins together may have the maximum number of connections divided by this number.
const PART_OF_PENALIZED: usize = 8;

pub struct Connections {
    most: usize,
    most_of_one: usize,
    state: Mutex<State>,
    open: Gauge,
    refused: Counter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Served,
    /// The request failed, but not because of the peer; for example, the server was busy.
    InVain,
    /// The peer sent no request in time, or a request that cannot be granted. The origin gets a penalty.
    Penalized,
}

/// The connection limit has two parts. A connection of a penalized origin belongs to `Penalized`, any other connection to `Usual`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Usual,
    Penalized,
}

struct State {
    usual: Share,
    penalized: Share,
    penalties: Penalties,
    next: u64,
}

struct Share {
    most: usize,
    /// The connections by origin. The oldest connection of an origin is first.
    of: BTreeMap<Origin, BTreeMap<u64, Connection>>,
    total: usize,
}

struct Connection {
    /// Dropping this sender ends the connection.
    _ends: oneshot::Sender<Infallible>,
    has_asked: bool,
}

/// An open connection. Dropping this value makes room for another connection.
pub struct Slot {
    connections: Arc<Connections>,
    origin: Origin,
    peers: Peers,
    part: Part,
    number: u64,
    outcome: OnceLock<Outcome>,
}

impl Connections {
    /// `open` is the gauge of open connections; `refused` counts connections that were rejected or ended because there were too many.
    pub fn new(most: usize, most_of_one: usize, open: Gauge, refused: Counter) -> Arc<Connections> {
        let of_penalized = most / PART_OF_PENALIZED;
        let state = State {
            usual: Share::new(most - of_penalized),
            penalized: Share::new(of_penalized),
            penalties: Penalties::default(),
            next: 0,
        };
        Arc::new(Connections { most, most_of_one, state: Mutex::new(state), open, refused })
    }

    /// Admits a new connection of an origin. If too many connections are open, ends an old connection, or rejects the new connection and
    /// returns `None`. The receiver closes when the new connection must end early.
    pub fn open(
        self: &Arc<Connections>,
        origin: Origin,
        peers: Peers,
        now: Instant,
    ) -> Option<(Slot, oneshot::Receiver<Infallible>)> {
        let most_of_one = self.most_of(peers);
        let mut state = self.state.lock();
        let part = if state.penalties.has(origin, now) { Part::Penalized } else { Part::Usual };
        let number = state.next;
        state.next += 1;
        let share = state.share(part);
        if share.is_too_much(origin, most_of_one) {
            self.refused.inc();
            let (of, number) = share.connection_to_end(origin, most_of_one)?;
            share.close(of, number);
        }
        let ends = share.open(origin, number);
        self.open.set(state.total());
        let outcome = OnceLock::new();
        Some((Slot { connections: self.clone(), origin, peers, part, number, outcome }, ends))
    }

    fn most_of(&self, peers: Peers) -> usize {
        match peers {
            Peers::Machines => self.most_of_one,
            Peers::LoadBalancer => (self.most / 2).max(self.most_of_one),
        }
    }
}

impl State {
    fn share(&mut self, part: Part) -> &mut Share {
        match part {
            Part::Usual => &mut self.usual,
            Part::Penalized => &mut self.penalized,
        }
    }

    fn total(&self) -> i64 {
        (self.usual.total + self.penalized.total) as i64
    }
}

impl Share {
    fn new(most: usize) -> Share {
        Share { most, of: BTreeMap::new(), total: 0 }
    }

    fn count(&self, origin: Origin) -> usize {
        self.of.get(&origin).map_or(0, BTreeMap::len)
    }

    fn is_too_much(&self, origin: Origin, most_of_one: usize) -> bool {
        self.total >= self.most || self.count(origin) >= most_of_one
    }

    /// Chooses the connection that ends to make room for a new connection of `origin`; `None` if the new connection is rejected.
    fn connection_to_end(&self, origin: Origin, most_of_one: usize) -> Option<(Origin, u64)> {
        if self.count(origin) >= most_of_one {
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

    fn open(&mut self, origin: Origin, number: u64) -> oneshot::Receiver<Infallible> {
        self.total += 1;
        let (sender, ends) = oneshot::channel();
        let connection = Connection { _ends: sender, has_asked: false };
        self.of.entry(origin).or_default().insert(number, connection);
        ends
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
    /// Notes that the whole request has arrived.
    pub fn has_asked(&self) {
        let mut state = self.connections.state.lock();
        let connections = state.share(self.part).of.get_mut(&self.origin);
        if let Some(connection) = connections.and_then(|connections| connections.get_mut(&self.number)) {
            connection.has_asked = true;
        }
    }

    /// Notes the result of the connection's only request.
    pub fn comes_to(&self, outcome: Outcome) {
        let _ = self.outcome.set(outcome);
    }

    /// Applies the result of a finished connection to its origin. Without this call, the origin never gets a penalty.
    pub fn remember(&self, now: Instant) {
        let mut state = self.connections.state.lock();
        match self.outcome.get().copied().unwrap_or(Outcome::Penalized) {
            Outcome::Served => state.penalties.forgive(self.origin),
            Outcome::InVain => {}
            Outcome::Penalized if self.peers == Peers::LoadBalancer => {}
            Outcome::Penalized => state.penalties.add(self.origin, now),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock();
        state.share(self.part).close(self.origin, self.number);
        self.connections.open.set(state.total());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    type Open = (Slot, oneshot::Receiver<Infallible>);

    fn origin(last: u8) -> Origin {
        Origin::from_address([10, 0, 0, last].into())
    }

    fn new_connections(most: usize, most_of_one: usize) -> Arc<Connections> {
        Connections::new(most, most_of_one, Gauge::default(), Counter::default())
    }

    fn open(connections: &Arc<Connections>, last: u8) -> Option<Open> {
        connections.open(origin(last), Peers::Machines, Instant::now())
    }

    fn is_ended((_, ends): &mut Open) -> bool {
        ends.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn one_origin_has_its_share_and_a_silent_connection_gives_way_in_it() {
        let connections = new_connections(9, 3);
        let mut other = open(&connections, 2).unwrap();
        let mut asking = open(&connections, 1).unwrap();
        asking.0.has_asked();
        let mut oldest = open(&connections, 1).unwrap();
        let mut later = open(&connections, 1).unwrap();
        let mut newcomer = open(&connections, 1).unwrap();
        assert!(is_ended(&mut oldest), "the oldest of those that have not asked");
        assert!(!is_ended(&mut asking) && !is_ended(&mut later) && !is_ended(&mut newcomer));
        assert_eq!(connections.state.lock().usual.count(origin(1)), 3);

        later.0.has_asked();
        newcomer.0.has_asked();
        assert!(open(&connections, 1).is_none(), "all are being answered");
        assert!(!is_ended(&mut other), "another has nothing to do with it");
        assert_eq!(connections.refused.get(), 2);
        drop(asking);
        assert!(open(&connections, 1).is_some());
    }

    #[test]
    fn the_origin_with_the_most_connections_loses_one() {
        let connections = new_connections(3, 3);
        let mut flood: Vec<_> = (0..3).map(|_| open(&connections, 1).unwrap()).collect();
        flood[0].0.has_asked();
        let honest = open(&connections, 2).unwrap();
        assert!(is_ended(&mut flood[1]), "the oldest that has not asked is ended");
        assert!(!is_ended(&mut flood[0]) && !is_ended(&mut flood[2]));
        let third = open(&connections, 3).unwrap();
        assert!(open(&connections, 4).is_none());
        drop((flood, honest, third));
        assert_eq!(connections.state.lock().total(), 0);
        assert!(connections.state.lock().usual.of.is_empty());
    }

    #[test]
    fn an_origin_with_a_penalty_shares_a_part_with_others_that_have_one() {
        let connections = new_connections(16, 16);
        let penalize = |last| open(&connections, last).unwrap().0.remember(Instant::now());
        (1..=20).for_each(penalize);
        let liars: Vec<_> = (1..=20).filter_map(|last| open(&connections, last)).collect();
        assert_eq!(liars.len(), 2);
        let others: Vec<_> = (21..=40).filter_map(|last| open(&connections, last)).collect();
        assert_eq!(others.len(), 14);
        drop((liars, others));
        assert_eq!(connections.state.lock().total(), 0);
    }

    #[test]
    fn a_load_balancer_is_not_blamed_for_one_of_its_machines_and_lets_the_newest_in() {
        let connections = new_connections(16, 2);
        let open = || connections.open(origin(1), Peers::LoadBalancer, Instant::now());
        for _ in 0..20 {
            open().unwrap().0.remember(Instant::now());
        }
        let mut all: Vec<Open> = (0..8).map(|_| open().unwrap()).collect();
        assert!(all.iter().all(|(slot, _)| slot.part == Part::Usual));
        all[0].0.has_asked();
        let newest = open().unwrap();
        assert!(!is_ended(&mut all[0]) && is_ended(&mut all[1]), "the oldest silent one gives way");
        drop(newest);
    }

    #[test]
    fn a_machine_beside_a_load_balancer_has_the_share_of_one_machine_and_is_blamed() {
        let connections = new_connections(16, 2);
        let balanced = || connections.open(origin(1), Peers::LoadBalancer, Instant::now());
        let mut all: Vec<Open> = (0..8).map(|_| balanced().unwrap()).collect();
        let mut flood: Vec<Open> = (0..6).map(|_| open(&connections, 2).unwrap()).collect();
        assert!((0..4).all(|oldest| is_ended(&mut flood[oldest])), "it has two at a time");
        assert!(all.iter_mut().all(|open| !is_ended(open)), "the load balancer's have nothing to do with it");
        flood.pop().unwrap().0.remember(Instant::now());
        assert_eq!(open(&connections, 2).unwrap().0.part, Part::Penalized);
    }

    #[test]
    fn an_answer_lifts_a_penalty_and_a_connection_in_vain_gives_none() {
        let connections = new_connections(16, 16);
        let come = |last, outcome| {
            let slot = open(&connections, last).unwrap().0;
            slot.comes_to(outcome);
            slot.remember(Instant::now());
            open(&connections, last).unwrap().0.part
        };
        assert_eq!(come(1, Outcome::Penalized), Part::Penalized);
        assert_eq!(come(1, Outcome::InVain), Part::Penalized);
        assert_eq!(come(1, Outcome::Served), Part::Usual);
        assert_eq!(come(2, Outcome::InVain), Part::Usual);
    }
}
