//! A part of a bundle: a file, or the reason why the file is missing.

use std::sync::Arc;
use std::time::Duration;

use kops_agent_plan::doctor::{Seen, Unseen};
use kops_agent_spec::redaction::Redactor;
use serde_json::Value;

use crate::doctor::deadline::run_in_thread;

/// Maximum size of a file in a bundle, in bytes. If a file is longer, only its end is kept, because the end of a
/// journal is its newest part.
pub const LONGEST: usize = 4 << 20;

/// If the bundle keeps only the end of a file, the redaction also reads this many bytes before the kept text. So it
/// recognizes a key that begins before the kept text. No key is longer than this margin.
const MARGIN: usize = 64 << 10;
/// How long the redaction of a part may take. A part that takes longer is left out.
const REDACTION: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub enum Content {
    Text(String),
    /// A value, which is printed as JSON.
    Json(Value),
}

#[derive(Clone, Debug)]
pub struct Part {
    /// The name of the part's file in the bundle.
    pub name: String,
    /// The content, or why it is missing.
    pub content: Seen<Content>,
}

/// The redactors of a bundle. A redactor for thousands of values takes seconds to build, so all parts share the
/// redactors.
pub struct Hiding {
    /// Hides secrets and free text.
    pub all: Redactor,
    /// Hides secrets only.
    pub secrets: Redactor,
}

impl Hiding {
    pub fn new(all: Redactor) -> Hiding {
        Hiding { secrets: all.of_secrets(), all }
    }
}

impl Part {
    pub fn text(name: impl Into<String>, text: Seen<String>) -> Part {
        Part { name: name.into(), content: text.map(Content::Text) }
    }

    pub fn json(name: impl Into<String>, value: Seen<Value>) -> Part {
        Part { name: name.into(), content: value.map(Content::Json) }
    }

    /// Returns this part with secrets hidden, and not longer than [`LONGEST`]. If the redaction takes too long, the
    /// part has no content.
    pub async fn redacted_in_time(self, hiding: &Arc<Hiding>) -> Part {
        let (name, hiding) = (self.name.clone(), Arc::clone(hiding));
        let redacting = run_in_thread(REDACTION, move || self.redacted(&hiding)).await;
        redacting.unwrap_or_else(|why| {
            Part::text(name, Err(Unseen::new(format_args!("its secrets could not be hidden: {why}"))))
        })
    }

    /// Returns this part with secrets hidden, and not longer than [`LONGEST`]. JSON values are from the agent and
    /// contain no free text. Texts are from other programs, so their free text is hidden, too.
    fn redacted(self, hiding: &Hiding) -> Part {
        let content = match self.content {
            Ok(Content::Text(text)) => {
                let (left_out, text) = end_of(&text, LONGEST + MARGIN);
                Ok(Content::Text(bounded(left_out, &hiding.all.text(text))))
            }
            Ok(Content::Json(value)) => {
                Ok(Content::Text(bounded(0, &format!("{:#}\n", hiding.secrets.json(&value)))))
            }
            Err(why) => Err(Unseen::new(hiding.all.text(&why.to_string()))),
        };
        Part { content, ..self }
    }

    /// The bytes of the part; `None` if it has no content.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match self.content.as_ref().ok()? {
            Content::Text(text) => Some(text.clone().into_bytes()),
            Content::Json(value) => Some(format!("{value:#}\n").into_bytes()),
        }
    }
}

/// Cuts a text to [`LONGEST`] bytes, and says how many bytes are left out. `left_out` is the number of bytes that the
/// caller has already left out.
fn bounded(left_out: usize, text: &str) -> String {
    match end_of(text, LONGEST) {
        (0, text) if left_out == 0 => text.to_owned(),
        (more, text) => format!("[the first {} bytes are left out]\n{text}", left_out + more),
    }
}

/// The end of a text: at most `longest` bytes, beginning at the start of a line. Also returns the length of the text
/// before this end.
fn end_of(text: &str, longest: usize) -> (usize, &str) {
    if text.len() <= longest {
        return (0, text);
    }
    let from = text.ceil_char_boundary(text.len() - longest);
    let from = text[from..].find('\n').map_or(text.len(), |line| from + line + 1);
    (from, &text[from..])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn bytes(part: Part) -> String {
        String::from_utf8(part.redacted(&Hiding::new(Redactor::default())).bytes().unwrap()).unwrap()
    }

    #[test]
    fn a_part_that_is_too_long_keeps_its_last_whole_lines() {
        let line = format!("{}\n", "harmless ".repeat(11));
        let text = format!("{}last\n", line.repeat(LONGEST / line.len() + 10));
        let kept = bytes(Part::text("x", Ok(text)));
        assert!(kept.len() < LONGEST + 100 && kept.ends_with(&format!("{line}last\n")), "{}", kept.len());
        assert!(
            kept.starts_with("[the first ") && kept.lines().nth(1).unwrap() == line.trim_end_matches('\n')
        );
        assert_eq!(
            bytes(Part::text("x", Ok("x".repeat(LONGEST + 1)))),
            format!("[the first {} bytes are left out]\n", LONGEST + 1)
        );
    }

    #[test]
    fn of_a_part_that_is_too_long_only_the_kept_end_is_searched() {
        // The key begins before the kept end, but is recognized. So no byte of the key is kept.
        let harmless = format!("{}\n", "harmless ".repeat(11));
        let key =
            format!("-----BEGIN PRIVATE KEY-----\n{}-----END PRIVATE KEY-----\n", "abcd\n".repeat(1000));
        let tail = harmless.repeat((LONGEST - 2000) / harmless.len());
        let kept = bytes(Part::text("x", Ok(format!("{}{key}{tail}", harmless.repeat(100_000)))));
        assert!(!kept.contains("abcd") && kept.ends_with(&harmless), "{}", kept.len());
        assert!(kept.len() < LONGEST + 100, "{}", kept.len());
    }

    #[test]
    fn values_are_printed_as_json() {
        assert_eq!(bytes(Part::json("x", Ok(serde_json::json!({"a": 1})))), "{\n  \"a\": 1\n}\n");
    }
}
