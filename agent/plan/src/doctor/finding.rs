//! What is told of one thing that was looked at.

use serde::Serialize;

/// What was seen, or why that is not known.
pub type Seen<T> = Result<T, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    /// The machine becomes its node, and something of it is not as it should be.
    Warning,
    /// Not known: neither well nor a problem.
    Unknown,
    /// The machine does not become its node.
    Problem,
}

/// Something that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What it belongs to: `dns`, `disk`.
    pub check: &'static str,
    pub verdict: Verdict,
    /// What is so, or what is wrong.
    pub what: String,
    /// What to do about it; empty where there is nothing to do.
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
