//! How often something may be asked for: by one node at one address, by one node from wherever else it is asked for in its
//! name, and by all of them together.
//!
//! What names a node is not verified yet when it is counted: what asks in its name elsewhere takes nothing of what it has at
//! its own address.
//!
//! Kept by the time until which what was asked for is paid (the generic cell rate algorithm, ATM Forum TM 4.0, section
//! 4.4.2): one instant for each, which is forgotten once it is over.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use kops_agent_cloud::verify::Origin;

/// So many at once, and one more after each while.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    pub burst: u32,
    /// How long it takes until one more is allowed.
    pub every: Duration,
}

/// What is allowed to each.
#[derive(Clone, Copy, Debug)]
pub struct Allowances {
    /// To what asks in one node's name at one address.
    pub at_one_address: Allowance,
    /// To all that asks in one node's name at other addresses than that at which it was last verified.
    pub elsewhere: Allowance,
    pub of_all: Allowance,
}

pub struct RateLimit {
    allowances: Allowances,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    at_one_address: BTreeMap<(String, Origin), Instant>,
    elsewhere: BTreeMap<String, Instant>,
    all_paid_until: Option<Instant>,
    /// Where nodes were last verified.
    verified: BTreeMap<String, Origin>,
}

impl Allowance {
    /// Until when it is paid with one more, or how long that is too early.
    fn pay(self, paid_until: Option<Instant>, now: Instant) -> Result<Instant, Duration> {
        let begins = paid_until.map_or(now, |until| until.max(now));
        let too_early = begins.saturating_duration_since(now + self.every * self.burst.saturating_sub(1));
        match too_early.is_zero() {
            true => Ok(begins + self.every),
            false => Err(too_early),
        }
    }
}

impl RateLimit {
    /// Nothing was asked for yet.
    pub fn new(allowances: Allowances) -> RateLimit {
        RateLimit { allowances, state: Mutex::default() }
    }

    /// Counts one more in the name of a node. What is too often is not counted, so that it costs others nothing.
    ///
    /// # Errors
    /// It is too often, by so long.
    pub fn take(&self, node: &str, origin: Origin, now: Instant) -> Result<(), Duration> {
        let Allowances { at_one_address, elsewhere, of_all } = self.allowances;
        let mut state = self.state.lock();
        let here = (node.to_owned(), origin);
        let paid_here = at_one_address.pay(state.at_one_address.get(&here).copied(), now)?;
        let paid_elsewhere = match state.verified.get(node) == Some(&origin) {
            true => None,
            false => Some(elsewhere.pay(state.elsewhere.get(node).copied(), now)?),
        };
        let paid_by_all = of_all.pay(state.all_paid_until, now)?;
        // As many as can be asked for by all in the time that one is remembered: that bounds this memory.
        state.at_one_address.retain(|_, until| *until > now);
        state.elsewhere.retain(|_, until| *until > now);
        state.at_one_address.insert(here, paid_here);
        if let Some(paid) = paid_elsewhere {
            state.elsewhere.insert(node.to_owned(), paid);
        }
        state.all_paid_until = Some(paid_by_all);
        Ok(())
    }

    /// Notes that it was this node indeed that asked there. There are no more of them than Nodes with instances that the cloud
    /// vouches for.
    pub fn verified(&self, node: &str, origin: Origin) {
        self.state.lock().verified.insert(node.to_owned(), origin);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::IpAddr;

    use super::*;
    use kops_agent_cloud::verify::MachinePrefix;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(last: u8) -> Origin {
        MachinePrefix::NETWORK.origin(IpAddr::from([10, 0, 0, last]))
    }

    fn limit(at_one_address: u32, elsewhere: u32, of_all: u32) -> RateLimit {
        let slow = |burst| Allowance { burst, every: 10 * SECOND };
        RateLimit::new(Allowances {
            at_one_address: slow(at_one_address),
            elsewhere: slow(elsewhere),
            of_all: Allowance { burst: of_all, every: SECOND },
        })
    }

    #[test]
    fn one_node_has_its_allowance_and_gets_it_back() {
        let (limit, now) = (limit(3, 100, 100), Instant::now());
        for _ in 0..3 {
            limit.take("a", at(1), now).unwrap();
        }
        assert_eq!(limit.take("a", at(1), now).unwrap_err(), 10 * SECOND);
        assert_eq!(limit.take("a", at(1), now + 4 * SECOND).unwrap_err(), 6 * SECOND);
        limit.take("b", at(2), now).unwrap();
        limit.take("a", at(1), now + 10 * SECOND).unwrap();
        assert!(limit.take("a", at(1), now + 10 * SECOND).is_err());
        limit.take("c", at(3), now + 60 * SECOND).unwrap();
        let state = limit.state.lock();
        assert_eq!((state.at_one_address.len(), state.elsewhere.len()), (1, 1), "what is over is forgotten");
    }

    #[test]
    fn what_asks_elsewhere_takes_nothing_of_what_a_node_has_where_it_is() {
        let (limit, now) = (limit(3, 5, 100), Instant::now());
        let taken = |origin| (0..9).filter(|_| limit.take("a", origin, now).is_ok()).count();
        assert_eq!(taken(at(2)), 3, "a thief");
        limit.take("a", at(1), now).unwrap();
        limit.verified("a", at(1));
        assert_eq!(taken(at(3)), 1, "with more addresses");
        assert_eq!(taken(at(4)), 0);
        assert_eq!(taken(at(1)), 2, "the node has what is left of its own");
    }

    #[test]
    fn all_nodes_share_one_and_what_is_too_often_takes_nothing_of_it() {
        let (limit, now) = (limit(2, 100, 5), Instant::now());
        let taken = (0..100).filter(|_| limit.take("greedy", at(9), now).is_ok()).count();
        assert_eq!(taken, 2);
        for node in ["a", "b", "c"] {
            limit.take(node, at(1), now).unwrap();
        }
        assert_eq!(limit.take("d", at(1), now).unwrap_err(), SECOND);
        limit.take("d", at(1), now + SECOND).unwrap();
    }
}
