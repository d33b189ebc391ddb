//! The type that Go's reader of YAML 1.1 gives to a text without quotes (`go.yaml.in/yaml/v2/resolve.go`).

use serde_json::{Number, Value};

/// The value that Go's YAML reader gives to a text without quotes. `None` if the value is a string. A date stays a string, because Go
/// also keeps a date as a string when it reads a document into a map.
pub(crate) fn value(text: &str) -> Option<Value> {
    match text.bytes().next()? {
        b'+' | b'-' | b'0'..=b'9' if !is_timestamp(text) => {
            let plain = text.replace('_', "");
            integer(&plain).or_else(|| is_decimal_float(&plain).then(|| float(plain.parse().ok()?))?)
        }
        b'.' if is_float_with_separators(text) => float(text.replace('_', "").parse().ok()?),
        _ => word(text),
    }
}

/// A float as Go writes it in JSON. A float without a fraction becomes an integer. `None` if JSON cannot represent the number.
pub(crate) fn float(float: f64) -> Option<Value> {
    const LARGEST: f64 = 9e18;
    match float.fract() == 0.0 && float.abs() < LARGEST {
        true => Some(Value::from(float as i64)),
        false => Number::from_f64(float).map(Value::Number),
    }
}

/// Whether a text without quotes is a string for Go, and also for YAML 1.1 parsers that read base-60 numbers.
pub fn is_plain_string(text: &str) -> bool {
    let Some(first) = text.bytes().next() else { return false };
    match first {
        b'+' | b'-' | b'0'..=b'9' => {
            !is_infinity(text) && !is_timestamp(text) && !is_number(text) && !is_base60(text)
        }
        b'.' => !is_infinity(text) && !is_float_with_separators(text),
        _ => word(text).is_none(),
    }
}

/// Parses the words for booleans and null in YAML 1.1.
fn word(text: &str) -> Option<Value> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Some(Value::Bool(true))
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Some(Value::Bool(false))
        }
        "~" | "null" | "Null" | "NULL" => Some(Value::Null),
        _ => None,
    }
}

fn is_infinity(text: &str) -> bool {
    if matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    matches!(text.trim_start_matches(['+', '-']), ".inf" | ".Inf" | ".INF") && text.len() <= 5
}

fn is_number(text: &str) -> bool {
    let plain = text.replace('_', "");
    is_integer(&plain)
        || is_decimal_float(&plain)
        || plain
            .strip_prefix("0b")
            .is_some_and(|digits| is_signed_binary(digits) || fits(digits, 2, UNSIGNED))
        || plain.strip_prefix("-0b").is_some_and(|digits| fits(digits, 2, NEGATIVE))
}

const POSITIVE: u64 = i64::MAX as u64;
const NEGATIVE: u64 = 1 << 63;
const UNSIGNED: u64 = u64::MAX;

/// Whether a text is an integer literal of Go: decimal, `0x`, `0o`, `0b`, or octal with a leading zero.
fn is_integer(text: &str) -> bool {
    integer(text).is_some()
}

/// The value of an integer literal of Go.
fn integer(text: &str) -> Option<Value> {
    let (unsigned, limit) = match text.as_bytes().first() {
        Some(b'+') => (&text[1..], POSITIVE),
        Some(b'-') => (&text[1..], NEGATIVE),
        _ => (text, UNSIGNED),
    };
    let (digits, base) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&unsigned[2..], 16),
        [b'0', b'o' | b'O', ..] => (&unsigned[2..], 8),
        [b'0', b'b' | b'B', ..] => (&unsigned[2..], 2),
        [b'0', _, ..] => (&unsigned[1..], 8),
        _ => (unsigned, 10),
    };
    let number = number(digits, base, limit)?;
    Some(match text.starts_with('-') {
        true => Value::from(0_i64.wrapping_sub_unsigned(number)),
        false => Value::from(number),
    })
}

fn is_signed_binary(text: &str) -> bool {
    match text.as_bytes().first() {
        Some(b'+') => fits(&text[1..], 2, POSITIVE),
        Some(b'-') => fits(&text[1..], 2, NEGATIVE),
        _ => false,
    }
}

fn fits(digits: &str, base: u32, limit: u64) -> bool {
    number(digits, base, limit).is_some()
}

fn number(digits: &str, base: u32, limit: u64) -> Option<u64> {
    let is_unsigned = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    u64::from_str_radix(digits, base).ok().filter(|number| is_unsigned && *number <= limit)
}

/// Whether a text has the form `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?` and is a finite number.
fn is_decimal_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    let exponent_is_number = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    has_digits
        && all_digits(whole)
        && all_digits(fraction)
        && exponent_is_number
        && text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// Whether a text is a float in Go's own syntax, which allows underscores between digits.
fn is_float_with_separators(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let separates = |at: usize| at > 0 && is_digit(at - 1) && is_digit(at + 1);
    bytes.iter().enumerate().all(|(at, byte)| *byte != b'_' || separates(at))
        && is_decimal_float(&text.replace('_', ""))
}

fn all_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a YAML 1.1 parser may read a text as a base-60 number: `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`. For
/// example, such a parser reads `12:30` as 750.
fn is_base60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits_and_underscores = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let mut parts = whole.split(':');
    let first = parts.next().unwrap_or_default();
    let mut rest = parts.peekable();
    first.starts_with(|c: char| c.is_ascii_digit())
        && digits_and_underscores(first)
        && rest.peek().is_some()
        && rest.all(|part| match part.as_bytes() {
            [unit] => unit.is_ascii_digit(),
            [ten, unit] => (b'0'..=b'5').contains(ten) && unit.is_ascii_digit(),
            _ => false,
        })
        && digits_and_underscores(fraction)
}

/// Whether a text is a date, or a date and a time, in a form that Go's reader accepts.
fn is_timestamp(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits != 4 || text.as_bytes().get(4) != Some(&b'-') {
        return false;
    }
    let Some((month, rest)) = up_to_two_digits(&text[5..]) else { return false };
    let Some(rest) = rest.strip_prefix('-') else { return false };
    let Some((day, rest)) = up_to_two_digits(rest) else { return false };
    let year: u32 = text[..4].parse().unwrap_or(0);
    if !(1..=12).contains(&month) || day < 1 || day > days_in(month, year) {
        return false;
    }
    match rest.as_bytes().first() {
        None => true,
        Some(b'T' | b't') => time_of_day(&rest[1..]).is_some_and(is_zone),
        Some(b' ') => {
            let rest = rest.trim_start_matches(' ');
            time_of_day(rest).is_some_and(str::is_empty)
        }
        Some(_) => false,
    }
}

fn days_in(month: u32, year: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Parses a time such as `15:4:5` with an optional fraction. Returns the rest of the text.
fn time_of_day(text: &str) -> Option<&str> {
    let (hour, rest) = up_to_two_digits(text)?;
    let (minute, rest) = up_to_two_digits(rest.strip_prefix(':')?)?;
    let (second, rest) = up_to_two_digits(rest.strip_prefix(':')?)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    match rest.as_bytes() {
        [b'.' | b',', digit, ..] if digit.is_ascii_digit() => {
            Some(rest[1..].trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        _ => Some(rest),
    }
}

fn is_zone(text: &str) -> bool {
    match text.as_bytes() {
        [b'Z'] => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] => {
            let two_digits = |ten: u8, unit: u8| {
                (ten.is_ascii_digit() && unit.is_ascii_digit()).then(|| (ten - b'0') * 10 + unit - b'0')
            };
            two_digits(*h1, *h2).is_some_and(|hours| hours <= 24)
                && two_digits(*m1, *m2).is_some_and(|minutes| minutes <= 60)
        }
        _ => false,
    }
}

fn up_to_two_digits(text: &str) -> Option<(u32, &str)> {
    let digits = text.bytes().take(2).take_while(u8::is_ascii_digit).count();
    let number = text[..digits].parse().ok()?;
    Some((number, &text[digits..]))
}
