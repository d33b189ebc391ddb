//! Private keys in PEM, whatever stands before each of their lines, as in a journal, or between them, as `\n` in JSON.

use super::mark::push_marks;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const CLOSE: &str = "-----";
const LABEL: &str = "PRIVATE KEY";

/// The longest key that there is, with what a journal writes before each line: what has no end ends here.
const LONGEST: usize = 32 * 1024;

/// A text without private keys, of as many lines.
pub(super) fn without_private_keys(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let (before, block) = rest.split_at(at);
        shown.push_str(before);
        if !is_private(block) {
            shown.push_str(BEGIN);
            rest = &block[BEGIN.len()..];
            continue;
        }
        let (key, after) = block.split_at(end_of(block));
        push_marks(key, &mut shown);
        rest = after;
    }
    shown.push_str(rest);
    shown
}

/// No label of a block is longer.
const LONGEST_LABEL: usize = 64;

/// Whether a block is of a private key, by the line that it begins with.
fn is_private(block: &str) -> bool {
    let label = &block[BEGIN.len()..];
    let label = &label[..label.floor_char_boundary(LONGEST_LABEL)];
    let line = label.split(['\n', '\r']).next().unwrap_or(label);
    line.find(LABEL).is_some_and(|at| line.find(CLOSE).is_none_or(|close| at < close))
}

/// Where a block ends.
fn end_of(block: &str) -> usize {
    let limit = block.floor_char_boundary(LONGEST);
    let within = &block[..limit];
    let Some(end) = within.find(END) else { return limit };
    let after = end + END.len();
    match within[after..].find(CLOSE) {
        Some(close) => after + close + CLOSE.len(),
        None => limit,
    }
}
