//! Decides which node has a slot, from the current Leases of its group.
//!
//! A slot is a Lease with a number. A slot is free if it names no holder, or if it was not renewed within its duration. So a killed holder
//! keeps a slot for at most [`LEASE_SECONDS`]. A node has at most one slot. After holding slots for [`LONGEST_HELD`], it must leave the
//! slots to other nodes for a time. The time until a slot is released or expires counts as held, because no other node gets the slot
//! before. So a node cannot hold slots for longer than [`LONGEST_HELD`] by not renewing them.

use super::message::SlotAction;

/// Seconds from a renewal until the slot expires. An API server restarts in less time.
pub const LEASE_SECONDS: i64 = 300;
/// Seconds between two renewals of a slot: nine renewals may fail before the slot expires.
pub const RENEW_EVERY: u64 = 30;
/// The maximum time for which a node may hold slots before it must pause for [`REST_SECONDS`], in seconds. This is long enough: a run with
/// `--health-timeout` and a rollback takes minutes, and systemd stops a run of the timer after an hour.
pub const LONGEST_HELD: i64 = 60 * 60;
/// The pause after [`LONGEST_HELD`], in seconds. During this pause, the node gets no slot. The held time of a slot no longer counts if the
/// slot's last renewal is longer ago than this pause.
pub const REST_SECONDS: i64 = 60 * 60;

/// A slot, as its Lease describes it. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    pub number: u32,
    /// The Node that holds the slot; empty if the slot is free.
    pub holder: String,
    pub last_holder: String,
    /// When the last holder acquired the slot.
    pub acquired: i64,
    /// When the slot was last renewed or released.
    pub renewed: i64,
    /// The time in seconds during which the last holder held slots before it acquired this slot. After a pause of [`REST_SECONDS`], this
    /// time begins at 0 again.
    pub held_before: i64,
    /// Whether the slot was not renewed within its duration.
    pub has_expired: bool,
}

impl Slot {
    fn is_held(&self) -> bool {
        !self.holder.is_empty() && !self.has_expired
    }

    /// The total time, up to `now`, during which the last holder held slots, in seconds. The time before a pause of [`REST_SECONDS`] does
    /// not count.
    fn held_until(&self, now: i64) -> i64 {
        let end = match self.holder.is_empty() {
            true => self.renewed,
            false => now.min(self.renewed.saturating_add(LEASE_SECONDS)),
        };
        self.held_before.saturating_add(end.saturating_sub(self.acquired).max(0))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The node gets this slot, or renews it.
    Hold {
        number: u32,
        acquired: i64,
        /// The time in seconds during which the node held slots before it acquired this slot.
        held_before: i64,
    },
    /// Other nodes hold all slots of the budget.
    Busy(Vec<Slot>),
    /// The node has held slots for too long.
    Resting {
        /// When the node may get a slot again, in seconds since 1970.
        until: i64,
    },
    /// The node has no slot to renew or release.
    HasNone,
    /// The node releases the slot with this number.
    Free(u32),
}

/// Decides about a slot request of `node`. `slots` are all slots of the node's group. The nodes of the group may hold at most `budget`
/// slots at a time.
pub fn decide(slots: &[Slot], node: &str, action: SlotAction, budget: u32, now: i64) -> Decision {
    let mut slots: Vec<&Slot> = slots.iter().collect();
    slots.sort_by_key(|slot| slot.number);
    let own = slots.iter().copied().find(|slot| slot.holder == node);
    if action == SlotAction::Release {
        return own.map_or(Decision::HasNone, |own| Decision::Free(own.number));
    }
    let kept = own.filter(|own| !own.has_expired);
    if action == SlotAction::Renew && kept.is_none() {
        return Decision::HasNone;
    }
    let is_of_node = |slot: &&&Slot| slot.holder == node || slot.last_holder == node;
    let had = slots.iter().filter(is_of_node).filter(|slot| slot.renewed + REST_SECONDS > now);
    let longest = had.max_by_key(|slot| slot.held_until(now));
    let held_before = longest.map_or(0, |slot| slot.held_until(now));
    if let Some(longest) = longest.filter(|_| held_before >= LONGEST_HELD) {
        return Decision::Resting { until: longest.renewed + REST_SECONDS };
    }
    if let Some(own) = kept {
        // A gap of more than `LEASE_SECONDS` means that a run of this node was killed, or that the API server was unreachable. The node
        // held the slot only for the first `LEASE_SECONDS` of the gap.
        let (acquired, held_before) = match now - own.renewed > LEASE_SECONDS {
            true => (now, held_before),
            false => (own.acquired, own.held_before),
        };
        return Decision::Hold { number: own.number, acquired, held_before };
    }
    let held: Vec<&Slot> = slots.into_iter().filter(|slot| slot.is_held()).collect();
    if held.len() >= usize::try_from(budget).unwrap_or(usize::MAX) {
        return Decision::Busy(held.into_iter().cloned().collect());
    }
    // Concurrent requests may choose the same free number. The API server then accepts only one write of the Lease.
    let is_free = |number: &u32| held.iter().all(|slot| slot.number != *number);
    let number = (0..=u32::MAX).find(is_free).unwrap_or_default();
    Decision::Hold { number, acquired: now, held_before }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use proptest::prelude::*;

    use super::SlotAction::{Acquire, Release, Renew};
    use super::*;

    const NOW: i64 = 1_800_000_000;

    #[test]
    fn the_slot_of_a_killed_run_counts_until_it_expires() {
        let left = Slot { renewed: NOW - 58 * 60, ..held(0, "a", NOW - 59 * 60) };
        let again = Decision::Hold { number: 0, acquired: NOW, held_before: 60 + LEASE_SECONDS };
        // For a slot of this node, `Acquire` and `Renew` lead to the same decision, however long the API server was unreachable.
        for action in [Acquire, Renew] {
            assert_eq!(decide(from_ref(&left), "a", action, 1, NOW), again);
        }
        let yesterday = Slot { renewed: NOW - 2 * REST_SECONDS, ..held(0, "a", NOW - 4 * LONGEST_HELD) };
        let anew = Decision::Hold { number: 0, acquired: NOW, held_before: 0 };
        assert_eq!(decide(from_ref(&yesterday), "a", Acquire, 1, NOW), anew);
    }

    #[test]
    fn a_holder_that_lets_its_leases_expire_must_rest_too() {
        let (mut slot, mut now) = (held(0, "a", NOW), NOW);
        let had = loop {
            now += LEASE_SECONDS + 1;
            match decide(from_ref(&slot), "a", Acquire, 1, now) {
                Decision::Hold { acquired, held_before, .. } => {
                    slot = Slot { acquired, held_before, renewed: now, ..slot };
                }
                Decision::Resting { .. } => break now - NOW,
                other => panic!("{other:?}"),
            }
            assert!(now - NOW < 2 * LONGEST_HELD, "it keeps the slot for ever");
        };
        assert!(had <= LONGEST_HELD + LEASE_SECONDS + 20, "{had}");
    }

    /// The periods in which other nodes cannot take the only slot. Node `a` waits the given seconds before each action.
    fn taken(steps: &[(i64, SlotAction)]) -> Vec<(i64, i64)> {
        let (mut now, mut slot) = (NOW, Slot::default());
        let mut spans: Vec<(i64, i64)> = Vec::new();
        for (wait, action) in steps {
            now += wait;
            slot.has_expired = now - slot.renewed > LEASE_SECONDS;
            let decision = decide(from_ref(&slot), "a", *action, 1, now);
            if matches!(decision, Decision::Hold { .. } | Decision::Free(_))
                && let Some((_, end)) = spans.last_mut()
            {
                *end = now.min(*end);
            }
            match decision {
                Decision::Hold { acquired, held_before, .. } => {
                    slot = Slot { held_before, renewed: now, ..held(0, "a", acquired) };
                    spans.push((now, now + LEASE_SECONDS));
                }
                Decision::Free(_) => slot = Slot { renewed: now, ..let_go(slot) },
                _ => {}
            }
        }
        spans
    }

    proptest! {
        #[test]
        fn no_holder_can_have_the_slot_for_more_than_half_of_the_time(
            steps in proptest::collection::vec((
                prop_oneof![
                    4 => LEASE_SECONDS - 1..=LEASE_SECONDS + 2,
                    2 => 0..40_i64,
                    1 => Just(REST_SECONDS - LEASE_SECONDS),
                    1 => REST_SECONDS - 1..=REST_SECONDS + 1,
                ],
                prop_oneof![6 => Just(Acquire), 2 => Just(Renew), 1 => Just(Release)],
            ), 1..100)
        ) {
            let spans = taken(&steps);
            let within = |from: i64, to: i64| -> i64 {
                spans.iter().map(|(start, end)| (to.min(*end) - from.max(*start)).max(0)).sum()
            };
            let window = LONGEST_HELD + REST_SECONDS;
            for (start, end) in &spans {
                for had in [within(*start, start + window), within(end - window, *end)] {
                    prop_assert!(had <= LONGEST_HELD + LEASE_SECONDS, "{had} of {window} seconds");
                }
            }
        }
    }

    fn held(number: u32, holder: &str, acquired: i64) -> Slot {
        Slot {
            number,
            holder: holder.into(),
            last_holder: holder.into(),
            acquired,
            renewed: NOW,
            ..Slot::default()
        }
    }

    fn expired(slot: Slot) -> Slot {
        Slot { has_expired: true, ..slot }
    }

    fn let_go(slot: Slot) -> Slot {
        Slot { holder: String::new(), ..slot }
    }

    fn new(number: u32) -> Decision {
        Decision::Hold { number, acquired: NOW, held_before: 0 }
    }

    #[test]
    fn a_free_slot_is_granted_and_a_held_one_is_busy() {
        assert_eq!(decide(&[], "a", Acquire, 1, NOW), new(0));
        let b = held(0, "b", NOW - 60);
        assert_eq!(decide(from_ref(&b), "a", Acquire, 1, NOW), Decision::Busy(vec![b.clone()]));
        assert_eq!(decide(from_ref(&b), "a", Acquire, 2, NOW), new(1));
        assert_eq!(decide(&[let_go(b.clone())], "a", Acquire, 1, NOW), new(0));
        assert_eq!(decide(&[expired(b)], "a", Acquire, 1, NOW), new(0), "its holder was killed");
        assert_eq!(decide(&[], "a", Acquire, 0, NOW), Decision::Busy(vec![]));
    }

    #[test]
    fn the_number_of_held_slots_counts_and_not_their_numbering() {
        let c = held(4, "c", NOW);
        assert_eq!(decide(from_ref(&c), "a", Acquire, 1, NOW), Decision::Busy(vec![c.clone()]));
        assert_eq!(decide(&[c, let_go(held(0, "b", NOW))], "a", Acquire, 2, NOW), new(0));
    }

    #[test]
    fn a_node_gets_its_own_slot_again_and_never_a_second() {
        let own = held(1, "a", NOW - 60);
        let slots = [held(0, "b", NOW), own];
        let same = Decision::Hold { number: 1, acquired: NOW - 60, held_before: 0 };
        for (action, budget) in [(Acquire, 1), (Acquire, 9), (Renew, 1)] {
            assert_eq!(decide(&slots, "a", action, budget, NOW), same);
        }
        assert_eq!(decide(&slots, "a", Release, 1, NOW), Decision::Free(1));
        assert_eq!(decide(&slots, "c", Release, 1, NOW), Decision::HasNone);
        assert_eq!(decide(&slots, "c", Renew, 9, NOW), Decision::HasNone, "renewing takes none");
    }

    #[test]
    fn an_expired_slot_cannot_be_renewed_but_acquired_again() {
        let slots = [expired(held(0, "a", NOW - 600))];
        assert_eq!(decide(&slots, "a", Renew, 1, NOW), Decision::HasNone);
        let again = Decision::Hold { number: 0, acquired: NOW, held_before: 600 };
        assert_eq!(decide(&slots, "a", Acquire, 1, NOW), again);
    }

    #[test]
    fn a_node_that_held_slots_for_too_long_must_rest() {
        let own = held(0, "a", NOW - LONGEST_HELD);
        let resting = Decision::Resting { until: NOW + REST_SECONDS };
        for action in [Acquire, Renew] {
            assert_eq!(decide(from_ref(&own), "a", action, 1, NOW), resting);
        }
        assert_eq!(decide(from_ref(&own), "a", Release, 1, NOW), Decision::Free(0));
        // Neither a release nor an expiry shortens the wait.
        for own in [let_go(own.clone()), expired(own.clone())] {
            assert_eq!(decide(from_ref(&own), "a", Acquire, 9, NOW), resting);
            assert_eq!(decide(from_ref(&own), "b", Acquire, 1, NOW), new(0));
            assert_eq!(
                decide(&[own], "a", Acquire, 1, NOW + REST_SECONDS),
                Decision::Hold { number: 0, acquired: NOW + REST_SECONDS, held_before: 0 }
            );
        }
    }

    #[test]
    fn holds_of_several_runs_add_up() {
        let own = Slot { held_before: LONGEST_HELD - 100, ..held(0, "a", NOW - 60) };
        let kept = Decision::Hold { number: 0, acquired: NOW - 60, held_before: LONGEST_HELD - 100 };
        assert_eq!(decide(from_ref(&own), "a", Renew, 1, NOW), kept);
        let again = Decision::Hold { number: 0, acquired: NOW, held_before: LONGEST_HELD - 40 };
        assert_eq!(decide(&[let_go(own.clone())], "a", Acquire, 1, NOW), again);
        let resting = Decision::Resting { until: NOW + REST_SECONDS };
        assert_eq!(decide(&[own], "a", Renew, 1, NOW + 40), resting);
    }
}
