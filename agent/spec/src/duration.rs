//! Durations in Go's syntax.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// A length of time (`metav1.Duration`). The input is in Go's syntax (`60s`, `1.5h`), and the output in Go's normal form (`1m0s`,
/// `1h30m0s`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    nanoseconds: i64,
}

/// A text that is not a duration in Go's syntax.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a duration; use a duration such as 90s, 1m30s or 1.5h")]
pub struct NotADuration(String);

impl Duration {
    pub const fn from_nanoseconds(nanoseconds: i64) -> Duration {
        Duration { nanoseconds }
    }

    pub const fn from_seconds(seconds: i32) -> Duration {
        Duration { nanoseconds: seconds as i64 * SECOND }
    }

    pub const fn nanoseconds(self) -> i64 {
        self.nanoseconds
    }

    /// Whole seconds, rounded toward zero.
    pub const fn seconds(self) -> i64 {
        self.nanoseconds / SECOND
    }

    pub const fn is_zero(self) -> bool {
        self.nanoseconds == 0
    }
}

impl FromStr for Duration {
    type Err = NotADuration;

    fn from_str(text: &str) -> Result<Duration, NotADuration> {
        parse(text).map(Duration::from_nanoseconds).ok_or_else(|| NotADuration(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<i64> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if unsigned == "0" {
        return Some(0);
    }
    if unsigned.is_empty() {
        return None;
    }
    let mut rest = unsigned;
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (nanoseconds, remainder) = parse_term(rest)?;
        total = total.checked_add(nanoseconds)?;
        rest = remainder;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Parses the first number and its unit, such as `1m` in `1m30s`. Returns the number of nanoseconds, and the rest of the text.
fn parse_term(text: &str) -> Option<(i128, &str)> {
    let (whole, rest) = split_digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => split_digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (unit, rest) = parse_unit(rest)?;
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    Some((whole.checked_mul(unit)?.checked_add(fraction_of(fraction, unit))?, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn parse_unit(text: &str) -> Option<(i128, &str)> {
    let (unit, rest) =
        text.split_at(text.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(text.len()));
    let nanoseconds = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    };
    Some((i128::from(nanoseconds), rest))
}

/// Converts the fraction `0.<digits>` of a unit to nanoseconds. Ignores fractions of a nanosecond.
fn fraction_of(digits: &str, unit: i128) -> i128 {
    let mut sum = 0;
    let mut scale = 1_i128;
    for digit in digits.bytes().take(18) {
        scale *= 10;
        sum = sum * 10 + i128::from(digit - b'0');
    }
    sum * unit / scale
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.nanoseconds.unsigned_abs();
        let sign = if self.nanoseconds < 0 { "-" } else { "" };
        let second = SECOND as u64;
        match total {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{sign}{total}ns"),
            1_000..1_000_000 => write!(f, "{sign}{}µs", decimal(total, 1_000)),
            1_000_000..1_000_000_000 => write!(f, "{sign}{}ms", decimal(total, 1_000_000)),
            _ => {
                let (minutes, below) = (total / (60 * second), total % (60 * second));
                let seconds = decimal(below, second);
                match (minutes / 60, minutes % 60) {
                    (0, 0) => write!(f, "{sign}{seconds}s"),
                    (0, minutes) => write!(f, "{sign}{minutes}m{seconds}s"),
                    (hours, minutes) => write!(f, "{sign}{hours}h{minutes}m{seconds}s"),
                }
            }
        }
    }
}

/// `value / unit` as a decimal without trailing zeros. `unit` is a power of ten.
fn decimal(value: u64, unit: u64) -> String {
    let (whole, fraction) = (value / unit, value % unit);
    if fraction == 0 {
        return whole.to_string();
    }
    let digits = unit.ilog10() as usize;
    let fraction = format!("{fraction:0digits$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn normal_form(text: &str) -> String {
        text.parse::<Duration>().unwrap().to_string()
    }

    #[test]
    fn durations_are_formatted_as_in_go() {
        for (text, shown) in [
            ("0", "0s"),
            ("0s", "0s"),
            ("60s", "1m0s"),
            ("1m0s", "1m0s"),
            ("1.5h", "1h30m0s"),
            ("24h", "24h0m0s"),
            ("90m", "1h30m0s"),
            ("100ms", "100ms"),
            ("1.5s", "1.5s"),
            ("1500ms", "1.5s"),
            ("1ns", "1ns"),
            ("1us", "1µs"),
            ("1.1µs", "1.1µs"),
            ("-5m", "-5m0s"),
            ("+5m", "5m0s"),
            (".5s", "500ms"),
            ("5.s", "5s"),
            ("1h15m30.918s", "1h15m30.918s"),
            ("2562047h47m16.854775807s", "2562047h47m16.854775807s"),
        ] {
            assert_eq!(normal_form(text), shown, "{text}");
        }
    }

    #[test]
    fn durations_that_go_rejects_are_rejected() {
        for text in ["", "3", "-", "s", ".s", "+", "1d", "3000000h", "1 s", "-.", "1s2", "one"] {
            assert!(text.parse::<Duration>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_ordered_by_length() {
        let [short, long]: [Duration; 2] = ["59s".parse().unwrap(), "1m".parse().unwrap()];
        assert!(short < long);
    }

    proptest! {
        #[test]
        fn the_normal_form_reads_back(nanoseconds in any::<i64>()) {
            let duration = Duration::from_nanoseconds(nanoseconds);
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }

        #[test]
        fn parsing_arbitrary_text_never_panics(text in "[-+0-9.hmsuµn ]{0,20}") {
            if let Ok(duration) = text.parse::<Duration>() {
                prop_assert_eq!(duration.to_string().parse(), Ok(duration));
            }
        }
    }
}
