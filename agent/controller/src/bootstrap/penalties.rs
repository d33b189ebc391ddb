//! Penalties for origins whose recent connection had no request, or no request that could be granted.
//!
//! A genuine machine gets a penalty only by accident, and retries after a backoff. Memory is bounded: only the latest penalties are
//! kept.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use kops_agent_cloud::verify::Origin;

/// How long a penalty lasts. A machine waits about as long before it retries.
const PENALTY: Duration = Duration::from_secs(60);
/// The maximum number of remembered origins. Each needs some hundred bytes.
const MOST: usize = 16 * 1024;

#[derive(Default)]
pub struct Penalties {
    until: BTreeMap<Origin, Instant>,
    /// The origins with the ends of their penalties, oldest first. This list keeps the old entry of a penalty that was renewed or removed.
    by_age: VecDeque<(Instant, Origin)>,
}

impl Penalties {
    pub fn has(&self, origin: Origin, now: Instant) -> bool {
        self.until.get(&origin).is_some_and(|until| *until > now)
    }

    pub fn add(&mut self, origin: Origin, now: Instant) {
        while self.by_age.front().is_some_and(|(until, _)| *until <= now || self.by_age.len() >= MOST) {
            let Some((until, oldest)) = self.by_age.pop_front() else { break };
            if self.until.get(&oldest) == Some(&until) {
                self.until.remove(&oldest);
            }
        }
        // Extend a penalty at most once a second. Otherwise one address could fill this memory.
        let until = now + PENALTY;
        let known = self.until.get(&origin).copied();
        if known.is_none_or(|known| until.duration_since(known) >= Duration::from_secs(1)) {
            self.until.insert(origin, until);
            self.by_age.push_back((until, origin));
        }
    }

    pub fn forgive(&mut self, origin: Origin) {
        self.until.remove(&origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(number: u32) -> Origin {
        Origin::from_address(std::net::IpAddr::V4(number.into()))
    }

    #[test]
    fn it_is_remembered_for_a_while() {
        let (mut penalties, now) = (Penalties::default(), Instant::now());
        penalties.add(origin(1), now);
        assert!(penalties.has(origin(1), now) && !penalties.has(origin(2), now));
        assert!(penalties.has(origin(1), now + PENALTY / 2));
        assert!(!penalties.has(origin(1), now + PENALTY));
        penalties.add(origin(1), now + PENALTY / 2);
        assert!(penalties.has(origin(1), now + PENALTY));
        penalties.add(origin(2), now + PENALTY);
        assert!(penalties.has(origin(1), now + PENALTY), "the later time counts");
        penalties.forgive(origin(1));
        assert!(!penalties.has(origin(1), now));
    }

    #[test]
    fn it_is_bounded() {
        let (mut penalties, now) = (Penalties::default(), Instant::now());
        for number in 0..2 * MOST as u32 {
            penalties.add(origin(number), now);
            penalties.add(origin(0), now);
        }
        assert!(penalties.by_age.len() <= MOST && penalties.until.len() <= MOST);
        assert!(penalties.has(origin(2 * MOST as u32 - 1), now), "the latest are remembered");
        penalties.add(origin(1), now + PENALTY);
        assert_eq!((penalties.by_age.len(), penalties.until.len()), (1, 1));
    }
}
