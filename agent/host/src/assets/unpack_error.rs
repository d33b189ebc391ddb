//! Why members could not be taken out of an archive.

use std::io;

use crate::error::Error;

/// Why members could not be taken out.
pub(super) enum UnpackError {
    /// It is no archive, or a broken one.
    Unreadable(String),
    /// It lacks a member; and some of what it has.
    Missing(String, String),
    /// This machine is at fault.
    Own(Error),
}

impl From<io::Error> for UnpackError {
    fn from(error: io::Error) -> UnpackError {
        UnpackError::Unreadable(error.to_string())
    }
}
