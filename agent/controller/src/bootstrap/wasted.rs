//! Who has wasted a connection not long ago: came with no request, or with one that could not be granted.
//!
//! A machine that is to be a node does so by accident at most, and comes again after a pause. Only so many are
//! remembered, the latest.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::addresses::Origin;

/// For how long it is remembered: about as long as a machine waits between two tries.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);
/// The most origins, some hundred bytes each.
const MOST: usize = 16 * 1024;

/// Origins that have wasted a connection.
#[derive(Default)]
pub struct Wasted {
    until: BTreeMap<Origin, Instant>,
    /// The same, the oldest first; one that was remembered again or forgiven since is here with an earlier end.
    by_age: VecDeque<(Instant, Origin)>,
}

impl Wasted {
    /// Whether an origin has.
    pub fn has(&self, origin: Origin, now: Instant) -> bool {
        self.until.get(&origin).is_some_and(|until| *until > now)
    }

    /// An origin has just now.
    pub fn add(&mut self, origin: Origin, now: Instant) {
        while self.by_age.front().is_some_and(|(until, _)| *until <= now || self.by_age.len() >= MOST) {
            let Some((until, oldest)) = self.by_age.pop_front() else { break };
            if self.until.get(&oldest) == Some(&until) {
                self.until.remove(&oldest);
            }
        }
        // Once a second is often enough: nobody can fill this memory with one address.
        let until = now + REMEMBERED_FOR;
        let known = self.until.get(&origin).copied();
        if known.is_none_or(|known| until.duration_since(known) >= Duration::from_secs(1)) {
            self.until.insert(origin, until);
            self.by_age.push_back((until, origin));
        }
    }

    /// Forgets that an origin has.
    pub fn forgive(&mut self, origin: Origin) {
        self.until.remove(&origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(number: u32) -> Origin {
        Origin::of(std::net::IpAddr::V4(number.into()))
    }

    #[test]
    fn it_is_remembered_for_a_while() {
        let (mut wasted, now) = (Wasted::default(), Instant::now());
        wasted.add(origin(1), now);
        assert!(wasted.has(origin(1), now) && !wasted.has(origin(2), now));
        assert!(wasted.has(origin(1), now + REMEMBERED_FOR / 2));
        assert!(!wasted.has(origin(1), now + REMEMBERED_FOR));
        wasted.add(origin(1), now + REMEMBERED_FOR / 2);
        assert!(wasted.has(origin(1), now + REMEMBERED_FOR));
        wasted.add(origin(2), now + REMEMBERED_FOR);
        assert!(wasted.has(origin(1), now + REMEMBERED_FOR), "the later time counts");
        wasted.forgive(origin(1));
        assert!(!wasted.has(origin(1), now));
    }

    #[test]
    fn it_is_bounded() {
        let (mut wasted, now) = (Wasted::default(), Instant::now());
        for number in 0..2 * MOST as u32 {
            wasted.add(origin(number), now);
            wasted.add(origin(0), now);
        }
        assert!(wasted.by_age.len() <= MOST && wasted.until.len() <= MOST);
        assert!(wasted.has(origin(2 * MOST as u32 - 1), now), "the latest are remembered");
        wasted.add(origin(1), now + REMEMBERED_FOR);
        assert_eq!((wasted.by_age.len(), wasted.until.len()), (1, 1));
    }
}
