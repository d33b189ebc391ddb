//! Decides when a failed add-on is retried. Each add-on has its own exponential backoff. A changed entry in the channel ends its
//! backoff. Nothing here does I/O or reads a clock.

use std::collections::BTreeMap;
use std::time::Duration;

use kops_agent_cluster::addons::{Addon, AddonSpec};
use kops_agent_net::retry::Pauses;
use tokio::time::Instant;

/// The pause after the first failure. Each further failure doubles the pause.
pub const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause, which equals the interval of upstream's channels pod. So kops-agent retries at least as often as upstream's pod,
/// for example for an add-on that waits for the cluster's first worker.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct Attempts {
    /// The failed add-ons, by channel and name.
    failed: BTreeMap<(String, String), Failed>,
}

#[derive(Debug)]
struct Failed {
    /// The channel's entry for the add-on at the last failure.
    entry: AddonSpec,
    failures: u32,
    /// The end of the backoff.
    not_before: Instant,
    problem: String,
}

impl Attempts {
    /// The last problem of an add-on that must wait for the end of its backoff. `None` if the add-on may be tried now.
    pub fn waits(&self, addon: &Addon, now: Instant) -> Option<&str> {
        let failed = self.failed.get(&key(addon)).filter(|failed| failed.entry == addon.spec)?;
        (now < failed.not_before).then_some(failed.problem.as_str())
    }

    /// Notes a failure of the add-on. Returns the backoff before the next try.
    pub fn failed(&mut self, addon: &Addon, problem: String, now: Instant) -> Duration {
        let before = self.failed.get(&key(addon)).filter(|failed| failed.entry == addon.spec);
        let failures = before.map_or(0, |failed| failed.failures);
        let pause = pause(failures, LONGEST_PAUSE);
        let failed = Failed {
            entry: addon.spec.clone(),
            failures: failures.saturating_add(1),
            not_before: now + pause,
            problem,
        };
        self.failed.insert(key(addon), failed);
        pause
    }

    /// Forgets the failures of an add-on that is current or paused.
    pub fn done(&mut self, addon: &Addon) {
        self.failed.remove(&key(addon));
    }

    /// Forgets the failures of add-ons that this channel no longer has.
    pub fn keep(&mut self, channel: &str, addons: &[Addon]) {
        self.failed.retain(|(of, name), _| of != channel || addons.iter().any(|addon| addon.name == *name));
    }

    /// The earliest end of any add-on's backoff.
    pub fn next(&self) -> Option<Instant> {
        self.failed.values().map(|failed| failed.not_before).min()
    }
}

/// The pause after a failure. `failures` is the number of failures directly before it.
pub fn pause(failures: u32, longest: Duration) -> Duration {
    Pauses { first: FIRST_PAUSE, longest }.after(failures)
}

/// When the next round starts: after the interval, or earlier. It starts earlier if a backoff ends, or if the last rounds could not read
/// everything.
pub fn next_look(
    now: Instant,
    interval: Duration,
    unread_rounds: u32,
    pause_ends: Option<Instant>,
) -> Instant {
    let regular = now + unread_rounds.checked_sub(1).map_or(interval, |before| pause(before, interval));
    pause_ends.map_or(regular, |ends| ends.max(now).min(regular))
}

fn key(addon: &Addon) -> (String, String) {
    (addon.channel.clone(), addon.name.clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_cluster::addons::{Channel, ServerVersion};
    use kops_agent_spec::kops_release::KopsRelease;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn addon(name: &str, hash: &str) -> Addon {
        let channel = format!(
            "{{kind: Addons, spec: {{addons: [{{name: {name}, manifest: a, manifestHash: {hash}}}]}}}}"
        );
        let channel = Channel::parse(channel.as_bytes(), "s3://b/channel.yaml", KopsRelease::NEWEST).unwrap();
        channel.menu(ServerVersion::parse("v1.36.0").unwrap()).addons.remove(0)
    }

    #[test]
    fn pauses_of_one_grow_up_to_the_longest_and_begin_anew_after_it_was_done() {
        let (mut attempts, start) = (Attempts::default(), Instant::now());
        let (a, other) = (addon("a", "1"), addon("b", "1"));
        assert_eq!(attempts.waits(&a, start), None, "one that has not failed");
        let (mut now, mut pauses) = (start, Vec::new());
        for round in 0..9 {
            let pause = attempts.failed(&a, format!("problem {round}"), now);
            let problem = format!("problem {round}");
            assert_eq!(attempts.waits(&a, now + pause - SECOND), Some(problem.as_str()));
            assert_eq!(attempts.waits(&other, now), None, "it keeps no other back");
            now += pause;
            assert_eq!((attempts.waits(&a, now), attempts.next()), (None, Some(now)));
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60, 60, 60, 60]);
        attempts.done(&a);
        assert_eq!(attempts.next(), None);
        assert_eq!(attempts.failed(&a, String::new(), now), FIRST_PAUSE);
    }

    #[test]
    fn another_entry_in_the_channel_ends_the_pause_and_the_failures() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        let before = addon("a", "1");
        for _ in 0..5 {
            attempts.failed(&before, "no".into(), now);
        }
        let after = addon("a", "2");
        assert!(attempts.waits(&before, now).is_some());
        assert_eq!(attempts.waits(&after, now), None);
        assert_eq!(attempts.failed(&after, "no".into(), now), FIRST_PAUSE);
    }

    #[test]
    fn attempts_of_removed_add_ons_are_forgotten_in_their_own_channel_only() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        let elsewhere = Addon { channel: "s3://b/other.yaml".into(), ..addon("a", "1") };
        for one in [&addon("a", "1"), &addon("b", "1"), &elsewhere] {
            attempts.failed(one, "no".into(), now);
        }
        attempts.keep("s3://b/channel.yaml", &[addon("b", "1")]);
        assert_eq!(attempts.waits(&addon("a", "1"), now), None);
        assert!(attempts.waits(&addon("b", "1"), now).is_some() && attempts.waits(&elsewhere, now).is_some());
    }

    #[test]
    fn rounds_start_at_the_interval_after_a_pause_and_soon_after_an_outage_began() {
        let (now, minute) = (Instant::now(), 60 * SECOND);
        let after = |unread, ends: Option<Duration>| {
            next_look(now, minute, unread, ends.map(|ends| now + ends)) - now
        };
        assert_eq!(after(0, None), minute);
        assert_eq!(after(0, Some(5 * SECOND)), 5 * SECOND);
        assert_eq!(after(0, Some(2 * minute)), minute);
        let outage: Vec<u64> = (1..=6).map(|unread| after(unread, None).as_secs()).collect();
        assert_eq!(outage, [5, 10, 20, 40, 60, 60]);
        assert_eq!(next_look(now + SECOND, minute, 0, Some(now)), now + SECOND, "it is over already");
    }
}
