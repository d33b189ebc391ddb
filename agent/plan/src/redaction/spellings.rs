//! The spellings that programs give a value: quoted for JSON, for C, for XML, for a shell, for a URL; in hexadecimal and in base64.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// What is escaped in a part of a URL (RFC 3986, section 2.3).
const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The same in a part of a path, as Go's `url.PathEscape` has it.
const RESERVED_IN_PATH: AsciiSet =
    RESERVED.remove(b'$').remove(b'&').remove(b'+').remove(b':').remove(b'=').remove(b'@');
/// How many letters of base64 at least: fewer are part of other words.
const SHORTEST_BASE64: usize = 5;

/// All of them, the value as it is among them.
pub(super) fn of(value: &str) -> Vec<String> {
    let json = [json_escaped(value), of_go(&json_escaped(value))];
    let mut all = vec![value.to_owned()];
    // A log in JSON of what is JSON has it quoted twice.
    all.extend(json.iter().map(|json| json_escaped(json)));
    all.extend(json.iter().map(|json| in_ascii(json)));
    all.extend(json);
    all.extend([of_c(value, hex_of_byte), of_c(value, octal_of_byte)].into_iter().flatten());
    all.extend(XML.map(|entities| of_xml(value, entities)));
    let escaped = [NON_ALPHANUMERIC, &RESERVED, &RESERVED_IN_PATH]
        .map(|set| utf8_percent_encode(value, set).to_string());
    for url in escaped {
        all.push(url.replace("%20", "+"));
        all.push(in_lower_case(&url));
        all.push(in_lower_case(&url).replace("%20", "+"));
        // A URL in a URL's parameter.
        all.push(url.replace('%', "%25"));
        all.push(url);
    }
    if value.contains('\'') {
        all.extend([r"'\''", r#"'"'"'"#].map(|quote| value.replace('\'', quote)));
    }
    all.push(shell_escaped(value));
    let hex = hex::encode(value);
    all.extend([hex.to_uppercase(), hex]);
    for engine in [STANDARD, URL_SAFE] {
        for offset in 0..3 {
            all.extend(
                base64_at(&engine, value.as_bytes(), offset).filter(|text| text.len() >= SHORTEST_BASE64),
            );
        }
        all.push(engine.encode(value));
    }
    all
}

/// As it stands between the quotes of JSON.
pub(super) fn json_escaped(text: &str) -> String {
    let quoted = Value::String(text.to_owned()).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// JSON as Go's `encoding/json` writes it.
fn of_go(json: &str) -> String {
    let escapes = [
        ('&', "\\u0026"),
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ];
    escapes.into_iter().fold(json.to_owned(), |json, (letter, escape)| json.replace(letter, escape))
}

/// JSON as Python and Java write it.
fn in_ascii(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c.is_ascii() {
            true => escaped.push(c),
            false => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| escaped += &format!("\\u{unit:04x}")),
        }
    }
    escaped
}

fn hex_of_byte(byte: u8) -> String {
    format!("\\x{byte:02x}")
}

fn octal_of_byte(byte: u8) -> String {
    format!("\\{byte:03o}")
}

/// With escapes of C in the place of what is not ASCII, and then also of spaces, as systemd writes it.
fn of_c(text: &str, escape: fn(u8) -> String) -> [String; 2] {
    [false, true].map(|with_spaces| {
        let is_plain = |byte: u8| byte.is_ascii() && !(with_spaces && byte == b' ');
        let spelt = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { escape(byte) };
        text.bytes().map(spelt).collect()
    })
}

/// The entities of `&`, `<`, `>`, `"` and `'`: of XML, of Go's `html` and `encoding/xml`, and by numbers.
const XML: [[&str; 5]; 3] = [
    ["&amp;", "&lt;", "&gt;", "&quot;", "&apos;"],
    ["&amp;", "&lt;", "&gt;", "&#34;", "&#39;"],
    ["&#38;", "&#60;", "&#62;", "&#34;", "&#39;"],
];

fn of_xml(text: &str, entities: [&str; 5]) -> String {
    let escapes = ['&', '<', '>', '"', '\''].into_iter().zip(entities);
    escapes.fold(text.to_owned(), |text, (letter, entity)| text.replace(letter, entity))
}

/// With a backslash before all that a shell may take for its own, as `printf %q` writes it.
fn shell_escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii()
            && !c.is_ascii_alphanumeric()
            && !matches!(c, '_' | '-' | '.' | '/' | '+' | '@' | '%' | ':' | '=')
        {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// With the digits of `%2F` in lower case, and all else as it is.
fn in_lower_case(url: &str) -> String {
    let mut lower = String::with_capacity(url.len());
    let mut of_escape = 0;
    for c in url.chars() {
        lower.push(if of_escape > 0 { c.to_ascii_lowercase() } else { c });
        of_escape = if c == '%' { 2 } else { usize::saturating_sub(of_escape, 1) };
    }
    lower
}

/// What of a text in base64 tells nothing but these bytes, which are so far from a third byte's end: without the letters at
/// both ends that tell of their neighbours, too.
fn base64_at(engine: &impl base64::Engine, bytes: &[u8], offset: usize) -> Option<String> {
    let mut shifted = vec![0; offset];
    shifted.extend_from_slice(bytes);
    let begin = (offset * 8).div_ceil(6);
    let end = shifted.len() * 8 / 6;
    engine.encode(&shifted).get(begin..end).map(str::to_owned)
}
