//! Errors of unpacking an archive.

use std::io;

use crate::error::Error;

pub(super) enum UnpackError {
    /// The file is no archive, or is broken.
    Unreadable(String),
    /// The missing member, and the names of some files in the archive.
    Missing(String, String),
    /// The fault is on this machine.
    Own(Error),
}

impl From<io::Error> for UnpackError {
    fn from(error: io::Error) -> UnpackError {
        UnpackError::Unreadable(error.to_string())
    }
}
