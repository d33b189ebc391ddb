//! Joins an error and its causes into one text, for output and logs.

use std::fmt::Display;

/// Joins an error and its causes, from the outermost to the innermost, and skips repeated texts. A cause with several lines starts on a new
/// line.
pub fn joined<T: Display>(causes: impl IntoIterator<Item = T>) -> String {
    let mut text = String::new();
    for cause in causes {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_causes_are_left_out() {
        assert_eq!(
            joined(["reading a: is not there", "is not there", "errno 2"]),
            "reading a: is not there: errno 2"
        );
        assert_eq!(joined(["wrong", "one\ntwo"]), "wrong:\none\ntwo");
        assert_eq!(joined::<&str>([]), "");
    }
}
