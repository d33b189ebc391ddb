//! Problems that remain after a rollback.

use crate::error::{Error, Result};

/// Adds the error of an unhealthy or refusing component to `still_wrong`, so that the rollback of the others continues.
pub(super) fn note(outcome: Result<()>, still_wrong: &mut Vec<String>) -> Result<()> {
    match outcome {
        Err(error)
            if error.is_refusal() || matches!(error, Error::Unhealthy { .. } | Error::Unasked { .. }) =>
        {
            still_wrong.push(error.to_string());
            Ok(())
        }
        other => other,
    }
}
