//! Waits for a condition by checking it repeatedly.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// The timeout of [`eventually`].
const TIMEOUT: Duration = Duration::from_secs(300);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// A pause lasts this many times as long as the check before it, but at least [`SHORTEST_PAUSE`] and at most [`LONGEST_PAUSE`]. Many checks
/// start kubectl. With shorter pauses, kubectl would take most of a core from the programs under test.
const PAUSE_PER_CHECK: u32 = 4;

/// Calls `check` until it returns `Some`, or until `timeout` has passed. Returns the result of the last call.
pub fn poll<T>(timeout: Duration, mut check: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        let checked = Instant::now();
        let found = check();
        if found.is_some() || begun.elapsed() > timeout {
            return found;
        }
        sleep((checked.elapsed() * PAUSE_PER_CHECK).clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
    }
}

/// Waits until `is_so` is true. Panics with `what` if it is still false after 300 s.
#[track_caller]
pub fn eventually(what: &str, is_so: impl Fn() -> bool) {
    assert!(poll(TIMEOUT, || is_so().then_some(())).is_some(), "not in time: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_repeated_until_it_finds_something_or_the_time_is_over() {
        let mut checks = 0;
        let third = poll(TIMEOUT, || {
            checks += 1;
            (checks == 3).then_some(checks)
        });
        assert_eq!(third, Some(3));
        assert_eq!(poll(Duration::ZERO, || None::<()>), None);
    }
}
