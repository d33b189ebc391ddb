//! Makes untrusted text safe for terminals and logs. Servers, stores and files may contain any text.

/// The maximum length of a problem that a command shows, in characters. The limit is needed because a kubelet may write any text into its
/// own Node.
pub const SHOWN_OF_PROBLEM: usize = 600;

/// Whether a character controls a terminal, breaks a line or changes the writing direction.
pub fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Converts untrusted text to one line of at most `longest` characters. A space replaces each character for which [`steers`] is true.
pub fn one_line(text: &str, longest: usize) -> String {
    text.chars().map(|c| if steers(c) { ' ' } else { c }).take(longest).collect()
}

/// The result of [`one_line`], with `…` at its end if the text was cut.
pub fn shortened(text: &str, longest: usize) -> String {
    match text.chars().nth(longest) {
        Some(_) => one_line(text, longest.saturating_sub(1)) + "…",
        None => one_line(text, longest),
    }
}

/// The maximum length of a cell of a table, in characters. Every name in Kubernetes fits into a cell. The limit is needed because untrusted
/// text may have any length, and Rust's formatting panics if a width is 65,536 or more.
const LONGEST_CELL: usize = 253;

/// Converts untrusted text to the text of a table's cell.
pub fn cell(text: &str) -> String {
    shortened(text, LONGEST_CELL)
}

/// Formats a header and the lines below it as a table. Each column is as wide as its longest cell, and two spaces separate the columns.
/// [`cell`] replaces terminal control characters and limits the length of each cell.
pub fn columns<const N: usize>(header: [&str; N], lines: impl IntoIterator<Item = [String; N]>) -> String {
    let lines = std::iter::once(header.map(str::to_owned)).chain(lines);
    let lines: Vec<[String; N]> = lines.map(|line| line.map(|text| cell(&text))).collect();
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

/// Makes a JSON document safe for a terminal. A JSON escape sequence replaces each character for which [`steers`] is true. Line breaks
/// stay, because they stand only between JSON values.
pub fn plain_json(json: &str) -> String {
    let mut plain = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' => plain.push(c),
            c if steers(c) => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| plain += &format!("\\u{unit:04x}"))
            }
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_free_of_terminal_controls_and_means_the_same() {
        let said = "a\u{9b}2J\u{85}\u{7f}\u{1b}[2J\r\n\t\"\u{2028}\u{202e}\u{2066}ä😀";
        let json = serde_json::to_string_pretty(&serde_json::json!({ said: [said] })).unwrap();
        assert!(json.contains('\u{9b}'), "JSON itself would let it stand");
        let plain = plain_json(&json);
        assert!(plain.chars().all(|c| c == '\n' || !steers(c)), "{plain:?}");
        assert!(plain.contains("a\\u009b2J\\u0085\\u007f") && plain.contains("ä😀"), "{plain}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&plain).unwrap(),
            serde_json::json!({ said: [said] })
        );
    }

    #[test]
    fn a_cell_has_a_limited_width() {
        let name = "a".repeat(LONGEST_CELL);
        assert_eq!(cell(&name), name);
        let longer = cell(&"ä\n".repeat(1 << 16));
        assert_eq!(longer.chars().count(), LONGEST_CELL);
        assert!(longer.starts_with("ä ä ") && longer.ends_with('…'), "{longer}");
    }

    #[test]
    fn one_line_removes_line_breaks() {
        assert_eq!(one_line("a\nREADY=1\r\tb\u{1b}[2J\u{2028}c\u{202e}", 99), "a READY=1  b [2J c ");
        assert_eq!(one_line(&"ä".repeat(1000), 300).chars().count(), 300);
    }
}
