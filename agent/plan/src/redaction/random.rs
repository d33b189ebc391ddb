//! Long runs of letters and digits that look random: tokens, and keys in base64 of which the journal has only a part.

use std::collections::BTreeSet;

use super::mark::MARK;

/// Shorter runs are names, mostly.
const SHORTEST: usize = 20;
/// How many of a hundred neighbours are of other kinds (lower case, upper case, digit): 62 where each is as likely, 20 to
/// 35 in what people make of words.
const CHANGES: usize = 30;
const CHANGES_WITHOUT_DIGITS: usize = 42;
/// Words of this many letters and digits, with no `-` or `_` between them, are so rare that fewer changes will do: a line of a
/// key's PEM that is in base64 once more may have 24.
const LONG: usize = 40;
const CHANGES_OF_LONG: usize = 20;

/// A text without them, but for these.
pub(super) fn without_runs(text: &str, public: &BTreeSet<String>) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find(is_of_run) {
        shown.push_str(&rest[..begin]);
        let run = &rest[begin..];
        let run = &run[..run.find(|c| !is_of_run(c)).unwrap_or(run.len())];
        rest = &rest[begin + run.len()..];
        // Base64 has slashes, too, and what is between two of them may be short.
        match public.contains(run) || !(is_random(run) || run.split('/').any(is_random)) {
            true => shown.push_str(run),
            false => shown.push_str(MARK),
        }
    }
    shown.push_str(rest);
    shown
}

fn is_of_run(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '_' | '-')
}

/// Whether this looks random: not made of words.
pub(super) fn is_random(run: &str) -> bool {
    let kinds: Vec<u8> = run.bytes().filter_map(kind).collect();
    if kinds.len() < SHORTEST || !kinds.contains(&LOWER) || !kinds.contains(&UPPER) {
        return false;
    }
    let changes = kinds.windows(2).filter(|two| two[0] != two[1]).count();
    let is_long = kinds.len() >= LONG && !run.contains(['-', '_']);
    let least = match kinds.contains(&DIGIT) {
        true if is_long => CHANGES_OF_LONG,
        true => CHANGES,
        false => CHANGES_WITHOUT_DIGITS,
    };
    changes * 100 >= least * (kinds.len() - 1)
}

const LOWER: u8 = 0;
const UPPER: u8 = 1;
const DIGIT: u8 = 2;

fn kind(byte: u8) -> Option<u8> {
    match byte {
        b'a'..=b'z' => Some(LOWER),
        b'A'..=b'Z' => Some(UPPER),
        b'0'..=b'9' => Some(DIGIT),
        _ => None,
    }
}
