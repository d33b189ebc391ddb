//! How results and errors are said: for people in plain words, for machines as JSON.

use std::io::{IsTerminal as _, Write as _};

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

use kops_agent_spec::causes;
pub use kops_agent_spec::terminal::one_line;
use kops_agent_spec::terminal::{cell, plain_json};

use crate::exit;
use crate::program;

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
}

/// Prints a text for people, of which nothing steers a terminal: files, stores and servers may have said some of it.
pub fn print_text(text: &str) -> Result<u8> {
    print_bytes(plain_lines(text).as_bytes())
}

/// Prints a document that programs read: byte for byte, and on a terminal as [`print_text`] does.
pub fn print_document(text: &str) -> Result<u8> {
    if std::io::stdout().is_terminal() { print_text(text) } else { print_bytes(text.as_bytes()) }
}

/// Writes to standard output what is no text for people, or has nothing that steers a terminal but colours; a reader that has
/// gone away is no error.
pub fn print_bytes(bytes: &[u8]) -> Result<u8> {
    print_if_read(bytes).map(|_| exit::CONVERGED)
}

/// The same, for what goes on printing: whether a reader is still there.
pub fn print_if_read(bytes: &[u8]) -> Result<bool> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// An error and its causes, without saying anything twice.
pub fn error_text(error: &anyhow::Error) -> String {
    causes::joined(error.chain())
}

/// The same lines, none of which steers a terminal: an error may repeat untrusted text. Commands of this program have its path.
pub fn plain_lines(text: &str) -> String {
    let text = program::with_path_in_commands(text);
    text.split('\n').map(|line| one_line(line, usize::MAX)).collect::<Vec<_>>().join("\n")
}

/// Lines in columns that are as wide as the longest of their cells, two spaces apart. No cell steers a terminal, and none is longer
/// than [`cell`] lets it be.
pub fn columns<const N: usize>(lines: &[[String; N]]) -> String {
    let plain = |line: &[String; N]| line.each_ref().map(|text| cell(text));
    let lines: Vec<[String; N]> = lines.iter().map(plain).collect();
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// The version of the JSON that verbs print: it grows where a field goes, or means something else.
const SCHEMA_VERSION: u32 = 1;

/// Prints a result as JSON, of which nothing steers a terminal. An object has `schemaVersion` besides its own fields.
pub fn print_json<T: Serialize>(value: &T) -> Result<u8> {
    print_bytes(json_text(value)?.as_bytes())
}

/// A value as JSON in one line, of which nothing steers a terminal.
pub fn json_line<T: Serialize>(value: &T) -> Result<String> {
    Ok(plain_json(&serde_json::to_string(value)?) + "\n")
}

fn json_text<T: Serialize>(value: &T) -> Result<String> {
    let json = serde_json::to_string_pretty(value)?;
    let json = match json.strip_prefix("{\n") {
        Some(fields) => format!("{{\n  \"schemaVersion\": {SCHEMA_VERSION},\n{fields}"),
        None => json,
    };
    Ok(plain_json(&json) + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_that_is_printed_steers_no_terminal() {
        assert_eq!(json_text(&["a\u{9b}2J"]).unwrap(), "[\n  \"a\\u009b2J\"\n]\n");
    }

    #[test]
    fn an_object_says_which_version_of_json_it_is() {
        let text = json_text(&std::collections::BTreeMap::from([("a", 1)])).unwrap();
        assert_eq!(text, "{\n  \"schemaVersion\": 1,\n  \"a\": 1\n}\n");
    }

    #[test]
    fn lines_stay_and_what_steers_a_terminal_goes() {
        let text = "a\n  b\u{1b}]0;x\u{7}\u{9b}2J\u{202e}ä\n";
        assert_eq!(plain_lines(text), "a\n  b ]0;x  2J ä\n");
    }
}
