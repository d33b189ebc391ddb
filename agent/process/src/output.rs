//! How results and errors are said: for people in plain words, for machines as JSON.

use std::io::Write;

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

use crate::exit;

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
}

/// Writes to standard output; a reader that has gone away is no error.
pub fn print_bytes(bytes: &[u8]) -> Result<u8> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(exit::CONVERGED),
    }
}

/// What a stranger may have written, as part of one line: nothing in it begins another line or steers a terminal, and it
/// has so many characters at most.
pub fn one_line(text: &str, longest: usize) -> String {
    // Separators of lines and paragraphs, and what turns the direction of writing.
    let is_harmful =
        |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if is_harmful(c) { ' ' } else { c }).take(longest).collect()
}

/// An error and its causes in one line, without saying anything twice.
pub fn error_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(if cause.contains('\n') { ":\n" } else { ": " });
        }
        text.push_str(&cause);
    }
    text
}

/// Prints a value as JSON.
pub fn print_json<T: Serialize>(value: &T) -> Result<u8> {
    let mut json = serde_json::to_vec_pretty(value)?;
    json.push(b'\n');
    print_bytes(&json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_is_one_line() {
        assert_eq!(one_line("a\nREADY=1\r\tb\u{1b}[2J\u{2028}c\u{202e}", 99), "a READY=1  b [2J c ");
        assert_eq!(one_line(&"ä".repeat(1000), 300).chars().count(), 300);
    }
}
