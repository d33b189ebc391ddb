//! Prints results and errors: as text for people, as JSON for programs.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal as _, Write as _};

use anyhow::Result;
use serde::Serialize;

use kops_agent_spec::causes;
pub use kops_agent_spec::terminal::one_line;
use kops_agent_spec::terminal::plain_json;

use crate::exit;
use crate::program;

/// Prints a text for people. A space replaces each terminal control character, because parts of the text may come from files,
/// stores and servers.
pub fn print_text(text: &str) -> Result<u8> {
    print_bytes(plain_lines(text).as_bytes())
}

/// Prints a document for programs. A file or pipe gets the text byte for byte. On a terminal, [`print_text`] prints the text.
pub fn print_document(text: &str) -> Result<u8> {
    if std::io::stdout().is_terminal() { print_text(text) } else { print_bytes(text.as_bytes()) }
}

/// Writes bytes to standard output unchanged. Use this function only for data that is not text for people, or for text whose only terminal
/// control characters are colours. It does not fail if the reader has closed the pipe.
pub fn print_bytes(bytes: &[u8]) -> Result<u8> {
    print_if_read(bytes).map(|_| exit::CONVERGED)
}

/// Like `print_bytes`, for commands that print repeatedly. Returns `false` if the reader has closed the pipe.
pub fn print_if_read(bytes: &[u8]) -> Result<bool> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The texts of an error and its causes, without repetition.
pub fn error_text(error: &anyhow::Error) -> String {
    causes::joined(error.chain())
}

/// Replaces terminal control characters in each line by spaces, because an error may contain untrusted text. Replaces the name of this
/// program in commands by its full path.
pub fn plain_lines(text: &str) -> String {
    let text = program::with_path_in_commands(text);
    text.split('\n').map(|line| one_line(line, usize::MAX)).collect::<Vec<_>>().join("\n")
}

/// The version of the JSON that commands print. Removing a field or changing its meaning increases the version.
const SCHEMA_VERSION: u32 = 1;

/// Prints a result as a JSON object with the field `schemaVersion`, and without terminal control characters. If the result is a list, it
/// becomes the field `items` of the object. Every command prints JSON with this function, or with [`json_line`] if it prints repeatedly.
pub fn print_json<T: Serialize>(value: &T) -> Result<u8> {
    print_bytes(json_text(value)?.as_bytes())
}

/// The JSON object that [`print_json`] prints, but on one line.
pub fn json_line<T: Serialize>(value: &T) -> Result<String> {
    let json = serde_json::to_string(value)?;
    let json = match with_version(&json, ["", ""]) {
        Some(object) => object,
        None => serde_json::to_string(&List::new(value))?,
    };
    Ok(plain_json(&json) + "\n")
}

fn json_text<T: Serialize>(value: &T) -> Result<String> {
    let json = serde_json::to_string_pretty(value)?;
    let json = match with_version(&json, ["\n  ", " "]) {
        Some(object) => object,
        None => serde_json::to_string_pretty(&List::new(value))?,
    };
    Ok(plain_json(&json) + "\n")
}

/// The JSON object around a printed list. A list needs this object, because only an object can have the field `schemaVersion`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a, T> {
    schema_version: u32,
    items: &'a T,
}

impl<'a, T> List<'a, T> {
    fn new(items: &'a T) -> List<'a, T> {
        List { schema_version: SCHEMA_VERSION, items }
    }
}

/// Adds `schemaVersion` as the first field. `before` is the white space before a field, and `within` is the white space after its colon.
/// `None` if the JSON is not an object.
fn with_version(json: &str, [before, within]: [&str; 2]) -> Option<String> {
    let fields = json.strip_prefix('{')?;
    let end = if fields == "}" { before.trim_end_matches(' ') } else { "," };
    Some(format!("{{{before}\"schemaVersion\":{within}{SCHEMA_VERSION}{end}{fields}"))
}

/// Whether the environment allows colours (<https://no-color.org>: an empty `NO_COLOR` counts as unset).
pub fn takes_colour(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    variable("NO_COLOR").is_none_or(|value| value.is_empty()) && !is_dumb(variable("TERM").as_deref())
}

/// Whether a terminal of this name (`TERM`) supports only plain text.
pub fn is_dumb(terminal: Option<&OsStr>) -> bool {
    terminal.is_some_and(|name| name == "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dumb_terminal_and_no_color_disable_colours() {
        for (no_color, term, expected) in [
            (None, Some("xterm"), true),
            (None, None, true),
            (Some(""), Some("xterm"), true),
            (Some("1"), Some("xterm"), false),
            (None, Some("dumb"), false),
        ] {
            let variable = |name: &str| if name == "TERM" { term } else { no_color }.map(OsString::from);
            assert_eq!(takes_colour(variable), expected, "{no_color:?} {term:?}");
        }
    }

    #[test]
    fn printed_json_has_no_terminal_control_characters() {
        let text = json_text(&["a\u{9b}2J"]).unwrap();
        assert_eq!(text, "{\n  \"schemaVersion\": 1,\n  \"items\": [\n    \"a\\u009b2J\"\n  ]\n}\n");
    }

    #[test]
    fn every_document_and_line_has_a_schema_version() {
        use serde_json::json;
        for (value, line) in [
            (json!({}), "{\"schemaVersion\":1}\n"),
            (json!({"a": 1}), "{\"schemaVersion\":1,\"a\":1}\n"),
            (json!([]), "{\"schemaVersion\":1,\"items\":[]}\n"),
            (json!([{"a": 1}]), "{\"schemaVersion\":1,\"items\":[{\"a\":1}]}\n"),
        ] {
            assert_eq!(json_line(&value).unwrap(), line);
            let parsed: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = json_text(&value).unwrap();
            assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), parsed, "{text}");
        }
        let text = json_text(&json!({"a": 1})).unwrap();
        assert_eq!(text, "{\n  \"schemaVersion\": 1,\n  \"a\": 1\n}\n");
        assert_eq!(json_text(&json!({})).unwrap(), "{\n  \"schemaVersion\": 1\n}\n");
    }

    #[test]
    fn plain_lines_keeps_lines_and_removes_control_characters() {
        let text = "a\n  b\u{1b}]0;x\u{7}\u{9b}2J\u{202e}ä\n";
        assert_eq!(plain_lines(text), "a\n  b ]0;x  2J ä\n");
    }
}
