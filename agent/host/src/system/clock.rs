//! When processes were started, by the clock that files were written by.
//!
//! What systemd and the kernel note of a start by the machine's clock is as wrong as that was then: at boot it may have
//! been years behind, until it was set over the network. So a start is told from how long ago it was, which no setting of
//! the clock changes (clock_gettime(2), `CLOCK_MONOTONIC`, `CLOCK_BOOTTIME`).

use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};

/// The clocks of a machine at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    pub(crate) wall: SystemTime,
    /// Since the machine was started, without the time for which it slept.
    pub(crate) monotonic: Duration,
    /// Since the machine was started.
    pub(crate) since_boot: Duration,
}

impl Clock {
    /// As they are now. A clock that the kernel does not have has run for no time: then nothing is known of starts by it.
    pub(crate) fn now() -> Clock {
        let read = |id| clock_gettime(id).map(Duration::from).unwrap_or_default();
        Clock {
            wall: SystemTime::now(),
            monotonic: read(ClockId::CLOCK_MONOTONIC),
            since_boot: read(ClockId::CLOCK_BOOTTIME),
        }
    }

    /// The time of day of something that was at `monotonic`; `None` where that is yet to come.
    pub(crate) fn of_monotonic(&self, monotonic: Duration) -> Option<SystemTime> {
        self.wall.checked_sub(self.monotonic.checked_sub(monotonic)?)
    }

    /// The time of day of something that was so long after the machine was started; `None` where that is yet to come.
    pub(crate) fn of_boot(&self, since_boot: Duration) -> Option<SystemTime> {
        self.wall.checked_sub(self.since_boot.checked_sub(since_boot)?)
    }
}

/// A time in microseconds since 1970; nothing is older than that.
pub(crate) fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The time that is so many microseconds after 1970.
pub(crate) fn of_micros(micros: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_told_by_the_clock_of_now_however_it_was_set_since() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let clock = Clock {
            wall: at(1_800_000_000),
            monotonic: Duration::from_secs(100),
            since_boot: Duration::from_secs(1000),
        };
        assert_eq!(clock.of_monotonic(Duration::from_secs(40)), Some(at(1_799_999_940)));
        assert_eq!(clock.of_boot(Duration::from_secs(40)), Some(at(1_799_999_040)));
        assert_eq!(clock.of_monotonic(Duration::from_secs(101)), None);
        let now = Clock::now();
        assert!(now.monotonic > Duration::ZERO && now.since_boot >= now.monotonic);
        assert_eq!(of_micros(micros(at(7))), at(7));
    }
}
