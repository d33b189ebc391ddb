//! Values that their names say are secret: `token=…`, `"password": "…"`, `Authorization: Bearer …`, `--password …`.

use super::mark::MARK;

/// Words of names of secrets.
const SECRET: [&str; 23] = [
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
    "passcode",
    "pw",
    "creds",
    "jwt",
    "otp",
];
/// What a word ends with that is such a name, written together with another: `PGPASSWORD`.
const SECRET_ENDS: [&str; 5] = ["password", "passwd", "passphrase", "token", "psk"];
/// Words before `key` that make it a secret one.
const SECRET_KEYS: [&str; 14] = [
    "private",
    "secret",
    "access",
    "api",
    "encryption",
    "account",
    "shared",
    "signing",
    "client",
    "master",
    "storage",
    "application",
    "ssh",
    "certificate",
];
/// What a name ends with that says where a secret is, and not what it is.
const PLACES: [&str; 23] = [
    "file", "path", "dir", "folder", "name", "names", "type", "kind", "count", "ttl", "expiry", "size",
    "version", "url", "uri", "id", "ids", "mode", "audience", "duration", "timeout", "enabled", "method",
];
/// How the path of a file ends that has the secret: `--kubelet-client-key=/srv/kubernetes/…`. No base64 has a dot.
const KEY_FILES: [&str; 3] = [".key", ".pem", ".crt"];
/// Names whose values go on to the end of the line.
const WHOLE_LINE: [&str; 6] = ["authorization", "cookie", "password", "passwd", "passphrase", "pwd"];

/// The same where a colon and a space stand before them: Go prints `Secret:&SecretVolumeSource{…`.
const WHOLE_LINE_AFTER_COLON: [&str; 3] = ["psk", "secret", "passcode"];
/// Words behind which a quoted one is what they name: `password 'x'`. A `secret "x"` is one of that name.
const BEFORE_QUOTES: [&str; 5] = ["password", "passwd", "passphrase", "passcode", "pwd"];

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

/// A text without such values. Every line is read once, however many names are in it.
pub(super) fn without_values(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut open = None;
    for line in text.split_inclusive(['\n', '\r']) {
        let content = line.trim_end_matches(['\n', '\r']);
        let hidden = open.as_ref().and_then(|open: &Open| open.hidden_from(content));
        match hidden {
            Some(at) if at < content.len() => {
                shown.push_str(&content[..at]);
                shown.push_str(MARK);
            }
            // A blank line is part of what is around it.
            Some(_) => shown.push_str(content),
            None => open = Line { line: content, value_from: None }.without_values(&mut shown),
        }
        shown.push_str(&line[content.len()..]);
    }
    shown
}

/// A name of YAML whose value is on the lines that follow.
struct Open {
    /// Where the name begins in its line: what is its value begins further in, whatever a journal writes before.
    column: usize,
    /// Whether it is text as it is (`|` and `>`), and no fields with names of their own.
    is_text: bool,
}

impl Open {
    /// From where a line is hidden that follows; `None` where it does not belong to the value.
    fn hidden_from(&self, line: &str) -> Option<usize> {
        if line.trim().is_empty() {
            return Some(line.len());
        }
        let value = line.get(self.column..).filter(|value| value.starts_with([' ', '\t']))?;
        let text = value.trim_start();
        let text = if self.is_text { text } else { text.strip_prefix("- ").unwrap_or(text).trim_start() };
        let has_name = text.split_whitespace().next().is_some_and(|word| word.ends_with(':'));
        (self.is_text || !has_name).then_some(line.len() - text.len())
    }
}

/// A line that values are looked for in.
struct Line<'a> {
    line: &'a str,
    /// Where the next `,ValueFrom` is, once it was looked for: the end of the line where there is none.
    value_from: Option<usize>,
}

impl Line<'_> {
    fn without_values(mut self, shown: &mut String) -> Option<Open> {
        let line = self.line;
        let mut at = 0;
        while let Some(begin) = line[at..].find(is_of_name) {
            let begin = at + begin;
            let end = line[begin..].find(|c| !is_of_name(c)).map_or(line.len(), |length| begin + length);
            shown.push_str(&line[at..end]);
            at = end;
            let (name, after) = (&line[begin..end], &line[end..]);
            let before = line[..begin].chars().next_back();
            let Some(length) = separator(after, name, before) else {
                if is_open(after, &line[..begin]) && is_secret_name(name) && !is_of_secrets(name) {
                    shown.push_str(after);
                    return Some(Open { column: begin, is_text: false });
                }
                continue;
            };
            let is_variable = is_value_of_variable(name, before);
            if !is_variable && !is_secret_name(name) {
                continue;
            }
            let (separator, value) = after.split_at(length);
            shown.push_str(separator);
            at = end + length;
            if separator.contains(':') && is_block(value) {
                shown.push_str(value);
                return Some(Open { column: begin, is_text: true });
            }
            // `"A_PASSWORD=x" "B=y"`, as systemd has variables.
            let word = before.filter(|c| separator == "=" && matches!(c, '"' | '\''));
            let hidden = match name == "Value" && before == Some(',') && !separator.ends_with('"') {
                true => {
                    self.variable_end(at).map_or_else(|| value_length(value, name, separator), |end| end - at)
                }
                false => match word.and_then(|quote| Quote::Plain(quote).end_in(value)) {
                    Some(end) => end,
                    None => value_length(value, name, separator),
                },
            };
            match &value[..hidden] {
                stays if is_no_secret(stays) => shown.push_str(stays),
                _ => shown.push_str(MARK),
            }
            at += hidden;
        }
        shown.push_str(&line[at..]);
        None
    }

    /// Where the value of a variable ends that Go prints: before what it may come from.
    fn variable_end(&mut self, from: usize) -> Option<usize> {
        let known = self.value_from.filter(|at| *at >= from);
        let at = known.unwrap_or_else(|| {
            let next = self.line[from..].find(",ValueFrom");
            next.map_or(self.line.len(), |next| from + next)
        });
        self.value_from = Some(at);
        (at < self.line.len()).then_some(at)
    }
}

/// Whether a value is none that lets one in, whatever its name: a switch, or the file that has the secret.
pub(super) fn is_no_secret(value: &str) -> bool {
    let is_key_file = value.starts_with('/')
        && !value.contains(char::is_whitespace)
        && KEY_FILES.iter().any(|end| value.ends_with(end));
    is_key_file || matches!(value, "" | "true" | "false" | "null")
}

/// Whether a name at the end of a line has its value on the next ones, and is no last word of a sentence.
fn is_open(after: &str, before: &str) -> bool {
    let after = after.trim_start_matches(['"', '\'']).strip_prefix(':');
    after.is_some_and(|after| after.trim_start().is_empty()) && {
        let before = before.trim_end_matches([' ', '\t', '"', '\'', '-']);
        before.is_empty() || before.ends_with([':', ']', '>'])
    }
}

/// Whether a value is the beginning of a block of YAML.
fn is_block(value: &str) -> bool {
    let Some(after) = value.strip_prefix(['|', '>']) else { return false };
    let is_of_header = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-');
    after.trim_start_matches(is_of_header).trim_start().is_empty()
}

/// Whether it is the value of a container's variable, as JSON has it or Go prints it: `"value":"x"`, `{Name:A,Value:x,`.
/// What its name says stands before it, and many say nothing.
fn is_value_of_variable(name: &str, before: Option<char>) -> bool {
    match before {
        Some('"' | '\'') => name == "value",
        Some(',' | ' ' | '{') => name == "Value",
        _ => false,
    }
}

/// Whether these are names of secrets.
fn is_of_secrets(name: &str) -> bool {
    words(name).last().is_some_and(|last| last == "secrets")
}

pub(super) fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// How long that is which stands between a name and its value, with the quotes about them; `None` where no value follows.
fn separator(after: &str, name: &str, before: Option<char>) -> Option<usize> {
    let skip = |from: usize, is_skipped: fn(char) -> bool| {
        from + after[from..].find(|c| !is_skipped(c)).unwrap_or(after.len() - from)
    };
    // Those without a width look like none.
    let is_space = |c: char| matches!(c, ' ' | '\t' | '\u{a0}' | '\u{200b}'..='\u{200d}' | '\u{feff}');
    let is_quote = |c: char| matches!(c, '"' | '\'' | '\\');
    let sign = skip(skip(0, is_quote), is_space);
    if after[sign..].starts_with(['=', ':']) {
        // `:=` of Go, and `::` of nothing.
        let past = skip(sign, |c| matches!(c, '=' | ':' | '>'));
        let past = skip(past, is_space);
        // A block of YAML.
        return Some(skip(past, is_quote)).filter(|at| *at < after.len());
    }
    // `<Password>x</Password>`.
    if before == Some('<') && after.starts_with('>') {
        return Some(1).filter(|at| *at < after.len());
    }
    if name.starts_with('-') {
        // `--password x`, `-token x`, `"--password","x"` and `[--password, x]`.
        let past = skip(0, |c| matches!(c, '"' | '\'' | '\\' | ' ' | '\t' | ','));
        let is_flag =
            after[..past].contains([' ', ',']) && past < after.len() && !after[past..].starts_with('-');
        return is_flag.then_some(past);
    }
    let is_quoted = after.starts_with([' ', '\t']) && BEFORE_QUOTES.contains(&name.to_lowercase().as_str());
    is_quoted
        .then(|| (skip(0, is_space), skip(skip(0, is_space), is_quote)))
        .filter(|(from, to)| from < to)
        .map(|(_, to)| to)
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
fn value_length(value: &str, name: &str, separator: &str) -> usize {
    let quote = Quote::that_ends(separator);
    let mut at = marks(value);
    if let Some(end) = quote.end_in(&value[at..]) {
        return at + end + value_of_key(&value[at + end..], quote);
    }
    if separator == ">" {
        return value.find('<').unwrap_or(value.len());
    }
    let words = words(name);
    let is_whole = words.iter().any(|word| {
        WHOLE_LINE.contains(&word.as_str())
            || SECRET_ENDS[..3].iter().any(|end| word.ends_with(end))
            || (separator.contains(": ") && WHOLE_LINE_AFTER_COLON.contains(&word.as_str()))
    });
    let is_of_secrets = words.last().is_some_and(|last| last == "secrets");
    loop {
        let rest = &value[at..];
        // An object's fields have names of their own.
        if rest.starts_with('{') && (!is_whole || is_begin_of_object(&rest[1..])) {
            return at;
        }
        if is_whole {
            return value.len();
        }
        if rest.starts_with('[') && !is_of_secrets {
            at += rest.find(']').map_or(rest.len(), |end| end + 1);
            at += marks(&value[at..]);
            continue;
        }
        // Python writes bytes so.
        for literal in ["b\"", "b'"] {
            if let Some(text) = rest.strip_prefix(literal) {
                let end = Quote::that_ends(literal).end_in(text).unwrap_or(text.len());
                return at + literal.len() + end;
            }
        }
        return at + plain_length(rest);
    }
}

/// How long the marks are that a text begins with.
fn marks(text: &str) -> usize {
    text.len() - text.trim_start_matches(MARK).len()
}

/// How long a value is that stands in no quotes. A comma is part of it where no other name follows.
fn plain_length(value: &str) -> usize {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';' | '&' | ')' | '}' | ']');
    let ends = |(at, c): &(usize, char)| match c {
        ',' => {
            let after = &value[at + 1..];
            let name = after.find(|c| !is_of_name(c)).unwrap_or(after.len());
            let after_name = &after[name..];
            after.starts_with(is_end) || after.is_empty() || (name > 0 && after_name.starts_with(['=', ':']))
        }
        c => is_end(*c),
    };
    value.char_indices().find(ends).map_or(value.len(), |(at, _)| at)
}

/// How much more is hidden where what has ended was a key: `secret: "adminPass":"x"`. From the quote that has closed it.
fn value_of_key(after: &str, quote: Quote) -> usize {
    let close = match quote {
        Quote::Escaped => "\\\"",
        Quote::Plain('"') => "\"",
        _ => return 0,
    };
    let mut at = 0;
    loop {
        let Some(rest) = after[at..].strip_prefix(close) else { return at };
        let Some(value) = rest.trim_start_matches(' ').strip_prefix(':') else { return at };
        let value = value.trim_start_matches(' ');
        match value.strip_prefix(close) {
            Some(text) => at = after.len() - text.len() + quote.end_in(text).unwrap_or(text.len()),
            None if value.starts_with('{') => return at,
            None => return after.len(),
        }
    }
}

fn is_begin_of_object(after: &str) -> bool {
    let after = after.trim_start_matches([' ', '\t']);
    after.is_empty() || after.starts_with(['"', '\'', '\\', '}'])
}
