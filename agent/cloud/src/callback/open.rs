//! Limits the connections to the call-back port. If there are too many, it selects the connection to close.
//!
//! No address is blocked: pods of this machine and kops-controller may share an address, and only TLS proves who connects. A connection is
//! unverified until it shows kops-controller's certificate. If all places are taken, the address with the most unverified connections loses
//! its oldest unverified connection. So a new connection always gets a place, and a flood from one address closes its own connections
//! first.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

pub(crate) struct Open {
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// The connections that have not shown kops-controller's certificate, oldest first. A connection ends when its sender is
    /// dropped.
    unverified: BTreeMap<u64, (IpAddr, oneshot::Sender<Infallible>)>,
    kops_controllers: BTreeMap<u64, oneshot::Sender<Infallible>>,
}

/// One of the limited places for connections. Dropping this value frees the place.
pub(crate) struct Place {
    open: Arc<Open>,
    number: u64,
}

impl Open {
    /// Creates an empty set with room for `most` connections.
    pub(crate) fn at_most(most: usize) -> Arc<Open> {
        Arc::new(Open { most, state: Mutex::default() })
    }

    /// Takes a place for a new connection from an address. The receiver completes when the connection must close early. `None` if
    /// connections of kops-controller take all places.
    pub(crate) fn enter(self: &Arc<Open>, address: IpAddr) -> Option<(Place, oneshot::Receiver<Infallible>)> {
        let mut state = self.state.lock();
        if state.unverified.len() + state.kops_controllers.len() >= self.most {
            let closed = state.oldest_to_close()?;
            state.unverified.remove(&closed);
        }
        let (sender, ends) = oneshot::channel();
        let number = state.next;
        state.next += 1;
        state.unverified.insert(number, (address, sender));
        Some((Place { open: self.clone(), number }, ends))
    }
}

impl State {
    /// The oldest unverified connection of the address with the most unverified connections. If several addresses have the most, the
    /// address with the oldest connection is selected.
    fn oldest_to_close(&self) -> Option<u64> {
        let mut of_addresses: BTreeMap<IpAddr, (usize, u64)> = BTreeMap::new();
        for (number, (address, _)) in &self.unverified {
            of_addresses.entry(address.to_canonical()).or_insert((0, *number)).0 += 1;
        }
        let most = |(count, oldest): &&(usize, u64)| (*count, std::cmp::Reverse(*oldest));
        of_addresses.values().max_by_key(most).map(|(_, oldest)| *oldest)
    }
}

impl Place {
    /// Marks the connection as kops-controller's. No other connection replaces it from now on.
    pub(crate) fn mark_as_kops_controllers(&self) {
        let mut state = self.open.state.lock();
        if let Some((_, sender)) = state.unverified.remove(&self.number) {
            state.kops_controllers.insert(self.number, sender);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.open.state.lock();
        state.unverified.remove(&self.number);
        state.kops_controllers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    type Entered = (Place, oneshot::Receiver<Infallible>);

    fn is_ended((_, ends): &mut Entered) -> bool {
        ends.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn the_oldest_unverified_connection_is_closed_and_never_kops_controllers() {
        let open = Open::at_most(3);
        let mut entered: Vec<Entered> = (0..3).map(|_| open.enter(ONE).unwrap()).collect();
        entered[0].0.mark_as_kops_controllers();
        for oldest in 1..50 {
            entered.push(open.enter(ONE).unwrap());
            assert!(is_ended(&mut entered[oldest]), "{oldest}");
            assert!(!is_ended(&mut entered[oldest + 1]) && !is_ended(&mut entered[0]));
        }
        entered.retain_mut(|entered| !is_ended(entered));
        assert_eq!(entered.len(), 3);
        entered.iter().for_each(|(place, _)| place.mark_as_kops_controllers());
        assert!(open.enter(ONE).is_none(), "kops-controller has all places");
        entered.pop();
        assert!(open.enter(ONE).is_some());
        drop(entered);
        let state = open.state.lock();
        assert!(state.unverified.is_empty() && state.kops_controllers.is_empty());
    }

    #[test]
    fn a_flood_from_one_address_closes_only_its_own_connections() {
        let open = Open::at_most(4);
        let mut first = open.enter(OTHER).unwrap();
        let mut flood: Vec<Entered> = (0..100).map(|_| open.enter(ONE).unwrap()).collect();
        assert!(!is_ended(&mut first), "its handshake takes as long as it takes");
        assert_eq!(flood.iter_mut().filter_map(|entered| (!is_ended(entered)).then_some(())).count(), 3);
        let mut others: Vec<Entered> = (0..3).map(|_| open.enter(OTHER).unwrap()).collect();
        assert!(others.iter_mut().all(|other| !is_ended(other)) || is_ended(&mut first));
    }

    #[test]
    fn a_closed_connection_does_not_free_the_place_of_another() {
        let open = Open::at_most(1);
        let first = open.enter(ONE).unwrap();
        let mut second = open.enter(ONE).unwrap();
        // The first connection has already ended, so these calls have no effect.
        first.0.mark_as_kops_controllers();
        drop(first);
        assert!(!is_ended(&mut second));
        assert_eq!(open.state.lock().unverified.len(), 1);
    }
}
