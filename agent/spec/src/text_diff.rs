//! Shows the differences of two texts. The hidden parts of the texts are placeholders
//! ([`crate::redaction::manifest`]).

use similar::{ChangeTag, DiffableStr as _, TextDiff};

use crate::redaction::manifest::without_placeholders;
use crate::redaction::{MARK, Redactor};

/// Returns the unified diff of two texts. `names` are the texts' names in the diff.
pub fn unified(names: [&str; 2], texts: [&str; 2]) -> String {
    let [before, after] = texts;
    let (old, new) = (shown_lines(before), shown_lines(after));
    let line = |lines: &[String], at: Option<usize>| at.and_then(|at| lines.get(at)).cloned();
    let diff = TextDiff::from_lines(before, after);
    let mut shown = String::new();
    for hunk in diff.unified_diff().context_radius(3).iter_hunks() {
        if shown.is_empty() {
            shown = format!("--- {}\n+++ {}\n", names[0], names[1]);
        }
        shown.push_str(&format!("{}\n", hunk.header()));
        for change in hunk.iter_changes() {
            let was = line(&old, change.old_index());
            let text = match change.tag() {
                ChangeTag::Delete => was,
                ChangeTag::Insert => line(&new, change.new_index()),
                // A line may be part of a private key in only one of the texts. The diff then hides the line in both texts.
                ChangeTag::Equal => {
                    was.filter(|was| was.contains(MARK)).or_else(|| line(&new, change.new_index()))
                }
            };
            let text = text.unwrap_or_else(|| format!("{MARK}\n"));
            shown.push_str(&format!("{}{text}", change.tag()));
            if !text.ends_with_newline() {
                shown.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    shown
}

/// The lines of a text, with marks in place of placeholders and secrets. The number of lines does not change.
pub fn shown_lines(text: &str) -> Vec<String> {
    let shown = Redactor::default().text(&without_placeholders(text));
    let shown: Vec<String> = shown.tokenize_lines().into_iter().map(str::to_owned).collect();
    let lines = text.tokenize_lines();
    // If hiding changed the number of lines, a shown line could not be matched to its original line. In this case, every line is hidden.
    if shown.len() == lines.len() { shown } else { lines.iter().map(|_| format!("{MARK}\n")).collect() }
}
