//! The names of objects: in URLs, and as the files and folders that they stand for.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

use super::backend::Place;

/// All but what needs no escape (RFC 3986, section 2.3).
pub(crate) const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A name as one segment of a path.
pub(crate) fn escaped(name: &str) -> PercentEncode<'_> {
    utf8_percent_encode(name, RESERVED)
}

/// What the names of everything below a folder begin with.
pub(crate) fn prefix(folder: &Place) -> String {
    match folder.key.trim_end_matches('/') {
        "" => String::new(),
        key => format!("{key}/"),
    }
}

/// The names directly below a folder, sorted and each once, by what objects and folders in it are called in full. A "folder"
/// that some tool has made is an object of the prefix's own name, which leaves none.
pub(crate) fn directly_below(prefix: &str, all: Vec<String>) -> Vec<String> {
    let below = |name: String| Some(name.strip_prefix(prefix)?.trim_end_matches('/').to_owned());
    let mut names: Vec<String> = all.into_iter().filter_map(below).filter(|name| !name.is_empty()).collect();
    names.sort();
    names.dedup();
    names
}

/// What two names both begin with.
pub(crate) fn common<'a>(first: &'a str, last: &str) -> &'a str {
    let differs = first.char_indices().zip(last.chars()).find(|((_, a), b)| a != b);
    let end = differs.map_or(first.len().min(last.len()), |((at, _), _)| at);
    first.get(..end).unwrap_or_default()
}
