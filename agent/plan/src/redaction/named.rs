//! Values that their names say are secret: `token=…`, `"password": "…"`, `Authorization: Bearer …`, `--password …`.

use super::MARK;

/// Words of names of secrets.
const SECRET: [&str; 18] = [
    "password",
    "passwd",
    "passphrase",
    "pass",
    "pwd",
    "secret",
    "secrets",
    "token",
    "tokens",
    "credential",
    "credentials",
    "auth",
    "authorization",
    "cookie",
    "signature",
    "sig",
    "apikey",
    "psk",
];
/// What a word ends with that is such a name, written together with another: `PGPASSWORD`.
const SECRET_ENDS: [&str; 5] = ["password", "passwd", "passphrase", "token", "psk"];
/// Words before `key` that make it a secret one.
const SECRET_KEYS: [&str; 10] =
    ["private", "secret", "access", "api", "encryption", "account", "shared", "signing", "client", "master"];
/// What a name ends with that says where a secret is, and not what it is.
const PLACES: [&str; 23] = [
    "file", "path", "dir", "folder", "name", "names", "type", "kind", "count", "ttl", "expiry", "size",
    "version", "url", "uri", "id", "ids", "mode", "audience", "duration", "timeout", "enabled", "method",
];
/// Names whose values go on to the end of the line.
const WHOLE_LINE: [&str; 6] = ["authorization", "cookie", "password", "passwd", "passphrase", "pwd"];

/// Whether what has this name is secret: a variable, a flag, a header or a field.
pub fn is_secret_name(name: &str) -> bool {
    let words = words(name);
    let has_key = |before: &str| {
        words.windows(2).any(|two| two[0] == before && matches!(two[1].as_str(), "key" | "keys"))
            || words.contains(&format!("{before}key"))
    };
    // The id of an access key is half of what it takes, and a secret's id is one of its halves by name.
    if has_key("access") || words.ends_with(&["secret".to_owned(), "id".to_owned()]) {
        return true;
    }
    let is_secret =
        |word: &String| SECRET.contains(&word.as_str()) || SECRET_ENDS.iter().any(|end| word.ends_with(end));
    let is_place = words.last().is_some_and(|last| PLACES.contains(&last.as_str()));
    !is_place && (words.iter().any(is_secret) || SECRET_KEYS.into_iter().any(has_key))
}

/// The words of a name, in lower case: of `clientKeyData`, `CLIENT_KEY_DATA` and `CLIENTKeyData` the same.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    let mut letters = name.chars().peekable();
    while let Some(c) = letters.next() {
        let mut ends_abbreviation = || letters.peek().is_some_and(|next| next.is_lowercase());
        if !c.is_alphanumeric() || (c.is_uppercase() && (was_lower || ends_abbreviation())) {
            words.push(String::new());
        }
        if c.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// A text without such values.
pub(super) fn without_values(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find(is_of_name) {
        let name_length = rest[begin..].find(|c| !is_of_name(c)).unwrap_or(rest.len() - begin);
        let (until, after) = rest.split_at(begin + name_length);
        let name = &until[begin..];
        let before = until[..begin].chars().next_back();
        shown.push_str(until);
        rest = after;
        let Some(assigned) = separator(after, name) else { continue };
        if !is_secret_name(name) && !is_value_of_variable(name, before) {
            continue;
        }
        let (separator, value) = after.split_at(assigned);
        let hidden = value_length(value, name, Quote::that_ends(separator));
        shown.push_str(separator);
        if hidden > 0 {
            shown.push_str(MARK);
        }
        rest = &value[hidden..];
    }
    shown.push_str(rest);
    shown
}

/// Whether it is the value of a container's variable, as JSON has it or Go prints it: `"value":"x"`, `{Name:A,Value:x,`.
/// What its name says stands before it, and many say nothing.
fn is_value_of_variable(name: &str, before: Option<char>) -> bool {
    match before {
        Some('"') => name == "value",
        Some(',') => name == "Value",
        _ => false,
    }
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// How long that is which stands between a name and its value, with the quotes about them; `None` where no value follows.
fn separator(after: &str, name: &str) -> Option<usize> {
    let skip = |from: usize, is_skipped: fn(char) -> bool| {
        from + after[from..].find(|c| !is_skipped(c)).unwrap_or(after.len() - from)
    };
    let is_space = |c: char| c == ' ' || c == '\t';
    let is_quote = |c: char| matches!(c, '"' | '\'' | '\\');
    let sign = skip(skip(0, is_quote), is_space);
    if after[sign..].starts_with(['=', ':']) {
        // `:=` of Go, and `::` of nothing.
        let past = skip(sign, |c| matches!(c, '=' | ':' | '>'));
        return Some(skip(skip(past, is_space), is_quote)).filter(|at| *at < after.len());
    }
    let is_flag = name.starts_with("--") && after.starts_with(' ');
    is_flag.then(|| skip(skip(0, is_space), is_quote)).filter(|at| !after[*at..].starts_with('-'))
}

/// The quote that a value stands in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    Plain(char),
    /// In JSON that is in a string itself.
    Escaped,
    None,
}

impl Quote {
    /// The one that what stands before a value ends with.
    fn that_ends(separator: &str) -> Quote {
        match separator.chars().next_back() {
            Some('"') if separator.ends_with("\\\"") => Quote::Escaped,
            Some(quote @ ('"' | '\'')) => Quote::Plain(quote),
            _ => Quote::None,
        }
    }

    /// Where a value of this line ends that stands in it; all of the line where it is not closed.
    fn end_in(self, line: &str) -> Option<usize> {
        let close = match self {
            Quote::None => return None,
            Quote::Escaped => line.find("\\\""),
            Quote::Plain(quote) => {
                let mut is_escaped = false;
                line.find(|c| {
                    let closes = c == quote && !is_escaped;
                    is_escaped = c == '\\' && !is_escaped;
                    closes
                })
            }
        };
        Some(close.unwrap_or(line.len()))
    }
}

/// How long a value is.
fn value_length(value: &str, name: &str, quote: Quote) -> usize {
    if let Some(rest) = value.strip_prefix(MARK) {
        return MARK.len() + value_length(rest, name, quote);
    }
    let line = &value[..value.find(['\n', '\r']).unwrap_or(value.len())];
    if let Some(end) = quote.end_in(line) {
        return end;
    }
    let words = words(name);
    let is_whole = words.iter().any(|word| {
        WHOLE_LINE.contains(&word.as_str()) || SECRET_ENDS[..3].iter().any(|end| word.ends_with(end))
    });
    // An object's fields have names of their own.
    let is_object = value.starts_with('{') && (!is_whole || is_begin_of_object(&value[1..]));
    if is_object {
        return 0;
    }
    if is_whole {
        return line.len();
    }
    if line.starts_with('[') && words.last().is_none_or(|last| last != "secrets") {
        let group = line.find(']').map_or(line.len(), |end| end + 1);
        return group + value_length(&value[group..], name, Quote::None);
    }
    // Python writes bytes so.
    for literal in ["b\"", "b'"] {
        if let Some(rest) = line.strip_prefix(literal) {
            let end = Quote::that_ends(literal).end_in(rest).unwrap_or(rest.len());
            return literal.len() + end;
        }
    }
    line.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | '&' | ')' | '}' | ']'))
        .unwrap_or(line.len())
}

fn is_begin_of_object(after: &str) -> bool {
    let after = after.trim_start_matches([' ', '\t']);
    after.is_empty() || after.starts_with(['"', '\'', '\\', '}', '\n', '\r'])
}
