//! Errors and their causes, in one line.

use std::error::Error;

use crate::dns::NameError;

/// An error and its causes in one line, none of them twice. A name without an address says all by itself.
pub fn in_one_line(error: &dyn Error) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(name) = error.source().and_then(|source| source.downcast_ref::<NameError>()) {
            return name.to_string();
        }
        let cause = error.to_string();
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
        next = error.source();
    }
    text
}

/// What an error comes from in the end.
pub fn innermost<'a>(mut error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    while let Some(source) = error.source() {
        error = source;
    }
    error
}
