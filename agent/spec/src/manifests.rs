//! Manifests that operators keep in files: many documents in one file, not completed by kOps.

mod actions;
mod field_path;
mod lines;

pub use actions::{Actions, has_action, has_action_within, has_control_line, with_words};
pub use field_path::{clear_at, value_at};
pub use lines::Lines;

/// One YAML document of a manifest file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document<'a> {
    pub text: &'a str,
    /// The number of lines in the file before `text`.
    pub lines_before: usize,
}

impl Document<'_> {
    /// Whether the document begins with a YAML separator that kOps does not accept, such as `--- # comment`. kOps splits a file only at
    /// lines that are exactly `---` (`SplitContentToSections` in util/pkg/text).
    pub fn begins_unlike_kops(&self) -> bool {
        let first = self.text.lines().next().unwrap_or_default();
        is_separator(first) && first != "---"
    }

    /// The line in the file at which the document's content begins. The first line is 1.
    pub fn line(&self) -> usize {
        self.lines_before + self.text.lines().take_while(|line| !is_content(line)).count() + 1
    }
}

/// The documents of a file. Documents without content are left out.
pub fn documents(text: &str) -> Vec<Document<'_>> {
    let mut documents = Vec::new();
    let (mut begin, mut at, mut lines_before) = (0, 0, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if is_separator(line) && at > begin {
            documents.push(Document { text: &text[begin..at], lines_before });
            (begin, lines_before) = (at, number);
        }
        at += line.len();
    }
    documents.push(Document { text: &text[begin..], lines_before });
    documents.retain(|document| document.text.lines().any(is_content));
    documents
}

/// Whether a line separates two documents. An indented line, as in a block scalar, is no separator.
fn is_separator(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

fn is_content(line: &str) -> bool {
    let line = line.strip_prefix("---").unwrap_or(line).trim();
    !line.is_empty() && !line.starts_with('#') && line != "..."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_many_documents() {
        let text =
            "# comment\n---\n# about a\na: |\n  ---\n  x\n--- # next\n\nb: 1\n---\n\n# empty\n---\nc: 1\n";
        let found: Vec<(usize, bool)> = documents(text)
            .iter()
            .map(|document| (document.line(), crate::parse_document(document.text.as_bytes(), "").is_ok()))
            .collect();
        assert_eq!(found, [(4, true), (9, true), (14, true)]);
        assert!(documents("").is_empty() && documents("---\n# nothing\n").is_empty());
        assert_eq!(documents("a: 1").len(), 1);
    }

    #[test]
    fn a_field_has_its_line_in_the_file() {
        let text = "a: 1\n---\nkind: Cluster\nspec:\n  b: 2\n";
        let document = documents(text)[1];
        let lines = Lines::parse(document.text);
        let line_of =
            |field: &str| lines.line_of(document.text, field).map(|line| document.lines_before + line);
        assert_eq!(line_of("spec.b"), Some(5));
        assert_eq!(line_of("spec.c"), Some(4));
        assert_eq!(line_of("status"), None);
        assert_eq!(document.line(), 3);
    }

    #[test]
    fn kops_splits_at_lines_of_three_dashes_only() {
        let found: Vec<bool> = documents("a: 1\n---\nb: 1\n--- # next\nc: 1\n---  \nd: 1\r\n---\r\ne: 1\n")
            .iter()
            .map(Document::begins_unlike_kops)
            .collect();
        assert_eq!(found, [false, false, true, true, false]);
    }
}
