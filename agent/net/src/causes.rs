//! Errors and their causes, in one line.

use std::error::Error;

use kops_agent_spec::causes::joined;
use kops_agent_spec::terminal::one_line;

use crate::dns::NameError;

/// Maximum length of an error text, in characters. A server may send a text of any length.
const LONGEST: usize = 2000;

/// An error and its causes in one line, without repetition. If one of the causes is a `NameError`, the line is only
/// the text of the `NameError`, because this text is complete.
pub fn in_one_line(error: &dyn Error) -> String {
    one_line(&all_of(error), LONGEST)
}

fn all_of(error: &dyn Error) -> String {
    let mut causes = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(name) = cause.downcast_ref::<NameError>() {
            return name.to_string();
        }
        causes.push(cause.to_string());
        next = cause.source();
    }
    joined(causes)
}

pub fn innermost<'a>(mut error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_server_becomes_one_line() {
        let said = std::io::Error::other(format!("esc \u{1b}]0;x\u{7}\nnext{}", "x".repeat(9000)));
        let line = in_one_line(&said);
        assert!(line.starts_with("esc  ]0;x  next") && line.chars().count() == LONGEST, "{line}");
    }
}
