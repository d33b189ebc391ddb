//! Stall detection: a download has stalled if too few bytes came in a window of waiting.

use std::time::Duration;

/// Measures the rate of incoming bytes. Only counts the time in which the run waits for bytes.
#[derive(Debug)]
pub(super) struct Rate {
    window: Duration,
    least: u64,
    waited: Duration,
    came: u64,
}

impl Rate {
    /// Requires at least `least` bytes in each `window` of waiting time.
    pub(super) fn new(window: Duration, least: u64) -> Rate {
        Rate { window, least, waited: Duration::ZERO, came: 0 }
    }

    /// How long to wait for the next bytes.
    pub(super) fn remaining(&self) -> Duration {
        self.window.saturating_sub(self.waited)
    }

    /// Records that `bytes` bytes arrived after a wait of `waited`.
    pub(super) fn note(&mut self, bytes: u64, waited: Duration) {
        self.waited += waited;
        self.came += bytes;
        if self.came >= self.least {
            (self.came, self.waited) = (0, Duration::ZERO);
        }
    }

    /// The error message if too few bytes arrive in time.
    pub(super) fn complaint(&self) -> String {
        match self.came {
            0 => format!("the server was silent for {:.0?}", self.window),
            came => format!("the server sent no more than {came} bytes in {:.0?}", self.window),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_enough_bytes_renew_the_timeout() {
        let mut rate = Rate::new(30 * SECOND, 1000);
        for _ in 0..20 {
            rate.note(1, SECOND);
        }
        assert_eq!(rate.remaining(), 10 * SECOND);
        rate.note(980, SECOND);
        assert_eq!(rate.remaining(), 30 * SECOND);
        assert_eq!(rate.complaint(), "the server was silent for 30s");
        rate.note(7, 40 * SECOND);
        assert_eq!(rate.remaining(), Duration::ZERO);
        assert_eq!(rate.complaint(), "the server sent no more than 7 bytes in 30s");
    }

    #[test]
    fn a_slow_disk_is_not_the_servers_fault() {
        let mut rate = Rate::new(30 * SECOND, 1000);
        // The time between two calls does not count, even if it is minutes.
        (0..10_000).for_each(|_| rate.note(1, Duration::ZERO));
        assert_eq!(rate.remaining(), 30 * SECOND);
    }
}
