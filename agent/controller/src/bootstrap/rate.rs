//! Rate limits of requests: per node at one address, per node at all other addresses, and for all nodes together.
//!
//! The name of a node is not verified yet when its request is counted. So requests in its name from elsewhere do not use up
//! its allowance at its own address.
//!
//! The algorithm is the generic cell rate algorithm (ATM Forum TM 4.0, section 4.4.2). Each request uses up one interval. Only
//! the end of the last used interval is stored for each key, and the key is removed after this time.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use kops_agent_cloud::verify::Origin;

/// The allowed rate of requests: a burst, and then one request per interval.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    pub burst: u32,
    /// The interval after which one additional request is allowed.
    pub every: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct Allowances {
    /// The allowance for requests in the name of one node from one address.
    pub at_one_address: Allowance,
    /// The allowance for requests in the name of one node from all addresses together, except the node's last verified address.
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
    /// The origin at which each node was last verified.
    verified: BTreeMap<String, Origin>,
}

impl Allowance {
    /// Counts one request. Each request uses up one interval. This interval begins at `now`, or at the end of the last used interval
    /// (`paid_until`) if that is later. Returns the end of the new interval. If the request is too early, the error is the time to wait.
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
    pub fn new(allowances: Allowances) -> RateLimit {
        RateLimit { allowances, state: Mutex::default() }
    }

    /// Counts one request in the name of a node. A rejected request is not counted, so it does not use up the allowance of other nodes. The
    /// error is the time until the next request is allowed.
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
        // Remove expired entries. This bounds the memory, because `of_all` limits how many entries are added before the oldest entry
        // expires.
        state.at_one_address.retain(|_, until| *until > now);
        state.elsewhere.retain(|_, until| *until > now);
        state.at_one_address.insert(here, paid_here);
        if let Some(paid) = paid_elsewhere {
            state.elsewhere.insert(node.to_owned(), paid);
        }
        state.all_paid_until = Some(paid_by_all);
        Ok(())
    }

    /// Notes that the cloud verified the node at this origin. The map has at most one entry per Node whose instance the cloud confirms.
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
    fn requests_from_other_addresses_use_up_no_limit_of_a_verified_nodes_address() {
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
    fn all_nodes_share_one_limit_and_rejected_requests_use_none_of_it() {
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
