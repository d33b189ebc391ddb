//! A part of a bundle: a file in it, or why there is none.

use kops_agent_plan::redaction::Redactor;
use serde_json::Value;

/// The longest file of a bundle, in bytes; of what is longer the end is kept, which is newer in a journal.
pub const LONGEST: usize = 4 << 20;

/// What is in a part.
#[derive(Clone, Debug)]
pub enum Content {
    /// A text.
    Text(String),
    /// A value, which is printed as JSON.
    Json(Value),
}

/// A part.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its file in the bundle.
    pub name: String,
    /// What is in it, or why it cannot be had.
    pub content: Result<Content, String>,
}

impl Part {
    /// A text.
    pub fn text(name: impl Into<String>, text: Result<String, String>) -> Part {
        Part { name: name.into(), content: text.map(Content::Text) }
    }

    /// A value.
    pub fn json(name: impl Into<String>, value: Result<Value, String>) -> Part {
        Part { name: name.into(), content: value.map(Content::Json) }
    }

    /// The same without what is secret, and not longer than [`LONGEST`].
    pub fn redacted(self, redactor: &Redactor) -> Part {
        let content = match self.content {
            Ok(Content::Text(text)) => Ok(Content::Text(bounded(redactor.text(&text)))),
            Ok(Content::Json(value)) => Ok(Content::Text(bounded(format!("{:#}\n", redactor.json(&value))))),
            Err(why) => Err(redactor.text(&why)),
        };
        Part { content, ..self }
    }

    /// Its bytes; `None` where it cannot be had.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match self.content.as_ref().ok()? {
            Content::Text(text) => Some(text.clone().into_bytes()),
            Content::Json(value) => Some(format!("{value:#}\n").into_bytes()),
        }
    }
}

/// A text that is not longer, cut between two lines.
fn bounded(text: String) -> String {
    if text.len() <= LONGEST {
        return text;
    }
    let mut from = text.len() - LONGEST;
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let from = text[from..].find('\n').map_or(text.len(), |line| from + line + 1);
    format!("[the first {from} bytes are left out]\n{}", &text[from..])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn bytes(part: Part) -> String {
        String::from_utf8(part.redacted(&Redactor::default()).bytes().unwrap()).unwrap()
    }

    #[test]
    fn what_is_too_long_keeps_its_end_in_whole_lines() {
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
    fn values_are_printed_as_json() {
        assert_eq!(bytes(Part::json("x", Ok(serde_json::json!({"a": 1})))), "{\n  \"a\": 1\n}\n");
    }
}
