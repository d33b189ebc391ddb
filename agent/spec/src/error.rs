//! The error of a file that kOps wrote. The error describes to the owner of the file what to correct.

use thiserror::Error;

use crate::failure::{Failing, Kind};

/// A file of the state store, or the user-data, cannot be read as the expected type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot read {source_and_field}: {problem}", source_and_field = place(source_file, field))]
pub struct SpecError {
    /// URL or path of the file.
    pub source_file: String,
    /// Dotted path of the field, as the file spells it. Empty if the whole file is wrong.
    pub field: String,
    /// The problem of the field, and the expected form of its value. This text never contains a value that may be secret.
    pub problem: String,
}

impl SpecError {
    /// An error about the whole file.
    pub fn of_file(source_file: &str, problem: impl Into<String>) -> SpecError {
        SpecError::of_field(source_file, "", problem)
    }

    pub fn of_field(source_file: &str, field: &str, problem: impl Into<String>) -> SpecError {
        SpecError { source_file: source_file.to_owned(), field: field.to_owned(), problem: problem.into() }
    }
}

impl Failing for SpecError {
    fn kind(&self) -> Kind {
        Kind::FileUnreadable
    }
}

fn place(source_file: &str, field: &str) -> String {
    if field.is_empty() { source_file.to_owned() } else { format!("field {field} of {source_file}") }
}
