//! How often something may be asked for: by one node, and by all of them together.
//!
//! Kept by the time until which what was asked for is paid (the generic cell rate algorithm, ATM Forum TM 4.0, section
//! 4.4.2): one instant a node, which is forgotten once it is over.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// So many at once, and one more after each while.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// At once.
    pub burst: u32,
    /// How long it takes until one more is allowed.
    pub every: Duration,
}

/// Counts.
pub struct RateLimit {
    of_one: Allowance,
    of_all: Allowance,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    paid_until: BTreeMap<String, Instant>,
    all_paid_until: Option<Instant>,
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
    pub fn new(of_one: Allowance, of_all: Allowance) -> RateLimit {
        RateLimit { of_one, of_all, state: Mutex::default() }
    }

    /// Counts one more of a node. What is too often is not counted, so that it costs others nothing.
    ///
    /// # Errors
    /// It is too often, by so long.
    pub fn take(&self, node: &str, now: Instant) -> Result<(), Duration> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let of_one = self.of_one.pay(state.paid_until.get(node).copied(), now)?;
        let of_all = self.of_all.pay(state.all_paid_until, now)?;
        // As many as can be asked for by all in the time that one is remembered: that bounds this memory.
        state.paid_until.retain(|_, until| *until > now);
        state.paid_until.insert(node.to_owned(), of_one);
        state.all_paid_until = Some(of_all);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn one_node_has_its_allowance_and_gets_it_back() {
        let limit = RateLimit::new(
            Allowance { burst: 3, every: 10 * SECOND },
            Allowance { burst: 100, every: SECOND },
        );
        let now = Instant::now();
        for _ in 0..3 {
            limit.take("a", now).unwrap();
        }
        assert_eq!(limit.take("a", now).unwrap_err(), 10 * SECOND);
        assert_eq!(limit.take("a", now + 4 * SECOND).unwrap_err(), 6 * SECOND);
        limit.take("b", now).unwrap();
        limit.take("a", now + 10 * SECOND).unwrap();
        assert!(limit.take("a", now + 10 * SECOND).is_err());
        limit.take("c", now + 60 * SECOND).unwrap();
        assert_eq!(limit.state.lock().unwrap().paid_until.len(), 1, "what is over is forgotten");
    }

    #[test]
    fn all_nodes_share_one_and_what_is_too_often_takes_nothing_of_it() {
        let limit =
            RateLimit::new(Allowance { burst: 2, every: 60 * SECOND }, Allowance { burst: 5, every: SECOND });
        let now = Instant::now();
        let taken = (0..100).filter(|_| limit.take("greedy", now).is_ok()).count();
        assert_eq!(taken, 2);
        for node in ["a", "b", "c"] {
            limit.take(node, now).unwrap();
        }
        assert_eq!(limit.take("d", now).unwrap_err(), SECOND);
        limit.take("d", now + SECOND).unwrap();
    }
}
