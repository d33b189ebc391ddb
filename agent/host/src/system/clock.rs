//! Computes when processes started, on the same clock that dates files.
//!
//! At boot the wall clock may be years behind, until it is set over the network. The wall-clock timestamps that
//! systemd and the kernel note for a start have that error. So a start is computed from its age: setting the wall
//! clock does not change the age (clock_gettime(2), `CLOCK_MONOTONIC`, `CLOCK_BOOTTIME`).

use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};

/// The clocks of a machine at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    pub(crate) wall: SystemTime,
    /// Time since boot, without the time the machine was suspended.
    pub(crate) monotonic: Duration,
    /// Time since boot, including the time the machine was suspended.
    pub(crate) since_boot: Duration,
}

impl Clock {
    /// Reads the clocks. If the kernel lacks a clock, its value is zero, and the start of a process cannot be
    /// computed from it.
    pub(crate) fn now() -> Clock {
        let read = |id| clock_gettime(id).map(Duration::from).unwrap_or_default();
        Clock {
            wall: SystemTime::now(),
            monotonic: read(ClockId::CLOCK_MONOTONIC),
            since_boot: read(ClockId::CLOCK_BOOTTIME),
        }
    }

    /// The wall-clock time of an event at `monotonic`. `None` if `monotonic` is in the future.
    pub(crate) fn of_monotonic(&self, monotonic: Duration) -> Option<SystemTime> {
        self.wall.checked_sub(self.monotonic.checked_sub(monotonic)?)
    }

    /// The wall-clock time of an event at `since_boot`. `None` if `since_boot` is in the future.
    pub(crate) fn of_boot(&self, since_boot: Duration) -> Option<SystemTime> {
        self.wall.checked_sub(self.since_boot.checked_sub(since_boot)?)
    }
}

/// A time in microseconds since 1970. An earlier time counts as 1970.
pub(crate) fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Converts microseconds since 1970 to a time.
pub(crate) fn of_micros(micros: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_start_follows_the_current_clock() {
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
