//! The result of one check.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

/// An observation, or the reason why it is unknown.
pub type Seen<T> = Result<T, Unseen>;

/// Why an observation is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Unseen(String);

impl Unseen {
    pub fn new(why: impl fmt::Display) -> Unseen {
        Unseen(why.to_string())
    }
}

impl From<Unseen> for String {
    fn from(Unseen(why): Unseen) -> String {
        why
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    /// The machine can become a node of the cluster, but a part of the node is wrong.
    Warning,
    /// The state is unknown: neither ok nor a problem.
    Unknown,
    /// The machine cannot become a node of the cluster.
    Problem,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The name of the check, such as `dns` or `disk`.
    pub check: &'static str,
    pub verdict: Verdict,
    /// The observed state, or the problem.
    pub what: String,
    /// The remedy. Empty if nothing has to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub to_do: String,
}

impl Finding {
    pub(super) fn ok(check: &'static str, what: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Ok, what: what.into(), to_do: String::new() }
    }

    pub(super) fn warning(check: &'static str, what: impl Into<String>, to_do: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Warning, what: what.into(), to_do: to_do.into() }
    }

    pub(super) fn problem(check: &'static str, what: impl Into<String>, to_do: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Problem, what: what.into(), to_do: to_do.into() }
    }

    pub(super) fn unknown(check: &'static str, what: impl Into<String>, to_do: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Unknown, what: what.into(), to_do: to_do.into() }
    }
}
