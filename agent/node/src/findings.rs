//! The findings of a check of configuration.

use std::fmt;

use kops_agent_spec::kops_release::WrittenBy;
use serde::Serialize;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Finding {
    /// URL or path of the file with the problem. Empty if the problem is not in a single file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// The line in the file. `None` if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Path of the field with the problem. Empty if the problem is not in a single field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// The problem and the remedy.
    pub problem: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { file, line, field, problem } = self;
        let place = match line {
            Some(line) => format!("{file}:{line}"),
            None => file.clone(),
        };
        for place in [&place, field].into_iter().filter(|place| !place.is_empty()) {
            write!(f, "{place}: ")?;
        }
        f.write_str(problem)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checked {
    /// The kOps version for which the manifests were checked.
    pub kops: String,
    pub files: usize,
    pub clusters: usize,
    pub instance_groups: usize,
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Checked { kops, files, clusters, instance_groups } = self;
        write!(
            f,
            "checked for kOps {kops}: {files} files, {clusters} clusters, {instance_groups} instance groups"
        )
    }
}

/// The numbers of errors and warnings, including those that are not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub errors: usize,
    pub warnings: usize,
}

/// All findings of `config check`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Findings {
    /// The kOps release that wrote the configuration. `None` if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_by: Option<WrittenBy>,
    /// The checked manifests. `None` if the command checked no manifests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked: Option<Checked>,
    /// Problems with which no machine becomes a node.
    pub errors: Vec<Finding>,
    /// Problems with which a machine may still become a node.
    pub warnings: Vec<Finding>,
    /// Parts of the manifests that are not checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_checked: Vec<Finding>,
    /// `None` means that all errors and warnings are listed.
    #[serde(skip)]
    pub counts: Option<Counts>,
}

impl Findings {
    /// The numbers of errors and warnings, including those that are not listed.
    pub fn counts(&self) -> Counts {
        let listed = Counts { errors: self.errors.len(), warnings: self.warnings.len() };
        self.counts.unwrap_or(listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_its_place() {
        let mut finding = Finding {
            file: "a.yaml".into(),
            line: Some(3),
            field: "spec.x".into(),
            problem: "is wrong".into(),
        };
        assert_eq!(finding.to_string(), "a.yaml:3: spec.x: is wrong");
        finding.line = None;
        assert_eq!(finding.to_string(), "a.yaml: spec.x: is wrong");
    }
}
