//! The number by which a cloud knows a machine, as a token says it.

/// The digits of the greatest number: upstream reads it into 63 bits.
const MOST_DIGITS: usize = 18;

/// A number that is written as clouds do, in plain digits, and in no other way.
pub(super) fn machine_number(text: &str) -> Option<u64> {
    let is_plain =
        text.len() <= MOST_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain)
}
