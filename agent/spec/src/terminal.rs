//! Text of strangers on a terminal, for all that shows or logs it: servers, stores and files may have written anything in it.

/// Whether a character steers a terminal, begins a line or turns the direction of writing.
pub fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A stranger's text as part of one line, of so many characters at most: each that [`steers`] is a space.
pub fn one_line(text: &str, longest: usize) -> String {
    text.chars().map(|c| if steers(c) { ' ' } else { c }).take(longest).collect()
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
