//! Values that their names say are secret: `token=…`, `"password": "…"`, `Authorization: Bearer …`, `--password …`.

use super::MARK;

/// Words of names of secrets.
const SECRET: [&str; 17] = [
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
];
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
    // The id of an access key is half of what it takes.
    if has_key("access") {
        return true;
    }
    let is_place = words.last().is_some_and(|last| PLACES.contains(&last.as_str()));
    !is_place
        && (words.iter().any(|word| SECRET.contains(&word.as_str())) || SECRET_KEYS.into_iter().any(has_key))
}

/// The words of a name, in lower case: of `clientKeyData` and `CLIENT_KEY_DATA` the same.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && was_lower) {
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
        shown.push_str(until);
        rest = after;
        let name = &until[begin..];
        let Some(assigned) = separator(after, name) else { continue };
        if !is_secret_name(name) {
            continue;
        }
        let (separator, value) = after.split_at(assigned);
        let hidden = value_length(value, name);
        shown.push_str(separator);
        if hidden > 0 {
            shown.push_str(MARK);
        }
        rest = &value[hidden..];
    }
    shown.push_str(rest);
    shown
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

/// How long a value is.
fn value_length(value: &str, name: &str) -> usize {
    if let Some(rest) = value.strip_prefix(MARK) {
        return MARK.len() + value_length(rest, name);
    }
    // An object's fields have names of their own, and a list is told by its elements.
    if value.starts_with(['{', '[']) {
        return 0;
    }
    let line = value.find(['\n', '\r']).unwrap_or(value.len());
    let is_whole = words(name).iter().any(|word| WHOLE_LINE.contains(&word.as_str()));
    let end = value[..line].find(move |c: char| match is_whole {
        true => matches!(c, '"' | '\''),
        false => c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | '&' | ')' | '}' | ']'),
    });
    let length = end.unwrap_or(line);
    // A quote that is escaped, as in JSON within JSON, has its backslash behind the value.
    match value[length..].starts_with('"') && value[..length].ends_with('\\') {
        true => length - 1,
        false => length,
    }
}
