//! Finds private keys in PEM, even if each line has a prefix, as in a journal, or if `\n` separates the lines, as in JSON.

use super::push_marks;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const CLOSE: &str = "-----";
const LABEL: &str = "PRIVATE KEY";

/// Maximum length of a private key's block, in bytes. The block may include the prefix that a journal adds to each line. If a block has no
/// end line, this many bytes are hidden.
const LONGEST: usize = 32 * 1024;

/// Replaces the private keys in a text with marks. Keeps the number of lines.
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

/// Maximum length of the label in the first line of a PEM block, in bytes.
const LONGEST_LABEL: usize = 64;

/// Whether a block's first line is the begin line of a private key.
fn is_private(block: &str) -> bool {
    let label = &block[BEGIN.len()..];
    let label = &label[..label.floor_char_boundary(LONGEST_LABEL)];
    let line = label.split(['\n', '\r']).next().unwrap_or(label);
    line.find(LABEL).is_some_and(|at| line.find(CLOSE).is_none_or(|close| at < close))
}

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
