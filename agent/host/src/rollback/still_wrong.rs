//! What is wrong although everything is as it was.

use crate::error::{Error, Result};

/// What is wrong with a component, or refused by it, ends no rollback: the others are to be put back all the same.
pub(super) fn note(outcome: Result<()>, still_wrong: &mut Vec<String>) -> Result<()> {
    match outcome {
        Err(error) if error.is_refusal() || matches!(error, Error::Unwell { .. } | Error::Unasked { .. }) => {
            still_wrong.push(error.to_string());
            Ok(())
        }
        other => other,
    }
}
