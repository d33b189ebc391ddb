//! Names of objects: escaped for URLs, and as files and folders.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

use super::backend::Place;

/// All characters that need an escape in a URL (RFC 3986, section 2.3).
pub(crate) const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Escapes a name so that it becomes one segment of a URL's path.
pub(crate) fn escaped(name: &str) -> PercentEncode<'_> {
    utf8_percent_encode(name, RESERVED)
}

/// The common prefix of the names of all objects below a folder.
pub(crate) fn prefix(folder: &Place) -> String {
    match folder.key.trim_end_matches('/') {
        "" => String::new(),
        key => format!("{key}/"),
    }
}

/// The names directly below a folder, sorted and without duplicates. `all` has the full names of objects and folders. The result omits an
/// object with the name `prefix`, which some tools make for the folder itself.
pub(crate) fn directly_below(prefix: &str, all: Vec<String>) -> Vec<String> {
    let below = |name: String| Some(name.strip_prefix(prefix)?.trim_end_matches('/').to_owned());
    let mut names: Vec<String> = all.into_iter().filter_map(below).filter(|name| !name.is_empty()).collect();
    names.sort();
    names.dedup();
    names
}

/// The longest common prefix of two names.
pub(crate) fn common<'a>(first: &'a str, last: &str) -> &'a str {
    let differs = first.char_indices().zip(last.chars()).find(|((_, a), b)| a != b);
    let end = differs.map_or(first.len().min(last.len()), |((at, _), _)| at);
    first.get(..end).unwrap_or_default()
}
