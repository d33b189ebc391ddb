//! The reason why a value is not accepted.

use thiserror::Error;

/// Why a value of a configuration, a file or an answer is invalid. In a message, the value's name and a colon stand before this text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Invalid(String);

impl Invalid {
    pub fn new(reason: impl Into<String>) -> Invalid {
        Invalid(reason.into())
    }
}

impl From<String> for Invalid {
    fn from(reason: String) -> Invalid {
        Invalid(reason)
    }
}

impl From<Invalid> for String {
    fn from(Invalid(reason): Invalid) -> String {
        reason
    }
}
