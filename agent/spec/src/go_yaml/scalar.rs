//! Chooses the YAML style of a text (`go.yaml.in/yaml/v2/emitterc.go`, `encode.go`).

use super::resolve::is_plain_string;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

/// Chooses the YAML style in which a string is written. The string may have several lines.
pub(super) fn style(text: &str) -> Style {
    if text.contains(is_foreign) {
        return Style::DoubleQuoted;
    }
    if text.contains('\n') {
        return if text.ends_with(' ') || text.contains(" \n") {
            Style::DoubleQuoted
        } else {
            Style::Literal
        };
    }
    if !is_plain_string(text) {
        return Style::DoubleQuoted;
    }
    if may_be_plain(text) { Style::Plain } else { Style::SingleQuoted }
}

/// Chooses the style of a simple key, which is on one line with its colon.
pub(super) fn key_style(text: &str) -> Style {
    match style(text) {
        Style::Plain if text == "<<" => Style::DoubleQuoted,
        style => style,
    }
}

/// Whether a character must be escaped: it is not printable in YAML 1.1, or only YAML 1.1 treats it as a line break.
fn is_foreign(c: char) -> bool {
    c != '\n' && (!is_printable(c) || matches!(c, '\u{2028}' | '\u{2029}'))
}

/// Whether Go's emitter treats a character as printable. The emitter escapes every character outside the
/// basic plane.
pub(super) fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{fffd}') && c != '\u{feff}'
}

fn may_be_plain(text: &str) -> bool {
    !text.starts_with(' ')
        && !text.ends_with(' ')
        && !text.starts_with("---")
        && !text.starts_with("...")
        && !starts_like_an_indicator(text)
        && !text.contains(": ")
        && !text.ends_with(':')
        && !text.contains(" #")
}

fn starts_like_an_indicator(text: &str) -> bool {
    let mut chars = text.chars();
    match chars.next() {
        Some(
            '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`',
        ) => true,
        Some('?' | ':' | '-') => matches!(chars.next(), None | Some(' ')),
        _ => false,
    }
}
