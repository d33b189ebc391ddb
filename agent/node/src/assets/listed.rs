//! The lines of `kops-agent config assets`, as text and as JSON.

use std::fmt;

use kops_agent_plan::needs::NeedKind;
use kops_agent_spec::urls::shown_url;
use serde::Serialize;

use super::{Asset, Check, Status};

/// A file, image or package that the nodes need. A login in its URL is hidden.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed<'a> {
    kind: NeedKind,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    distribution: Option<&'a str>,
    /// The publisher's URL of a file. Set only if the file comes from a mirror.
    #[serde(skip_serializing_if = "Option::is_none")]
    canonical: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mirrors: Vec<String>,
    /// The groups that need this file, image or package. Empty for images of add-ons.
    instance_groups: Vec<&'a str>,
    architectures: Vec<&'static str>,
    #[serde(flatten)]
    check: Option<Check>,
    /// Whether the command has the flag `--check`.
    #[serde(skip)]
    is_check: bool,
}

impl<'a> Listed<'a> {
    pub fn new(Asset { need, users, canonical, check }: Asset<'a>, is_check: bool) -> Listed<'a> {
        let is_file = need.kind == NeedKind::File;
        Listed {
            kind: need.kind,
            name: if is_file { shown_url(&need.name) } else { need.name.clone() },
            sha256: need.sha256.as_deref(),
            distribution: need.distribution.as_deref(),
            canonical: canonical.map(shown_url),
            mirrors: need.mirrors.iter().map(|url| shown_url(url)).collect(),
            instance_groups: users.groups.iter().map(String::as_str).collect(),
            architectures: users.architectures.iter().copied().collect(),
            check,
            is_check,
        }
    }

    pub fn status(&self) -> Option<Status> {
        self.check.as_ref().map(|check| check.status)
    }
}

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_check {
            let status = match self.status() {
                Some(Status::Ok) => "ok",
                Some(Status::Missing) => "MISSING",
                Some(Status::Unknown) => "UNKNOWN",
                None => "-",
            };
            write!(f, "{status} ")?;
        }
        let of = self.sha256.or(self.distribution).unwrap_or("-");
        write!(f, "{} {of} {}", self.kind.name(), self.name)?;
        match self.check.as_ref().map(|check| check.problems.as_slice()) {
            None | Some([]) => Ok(()),
            Some(problems) => write!(f, " ({})", problems.join("; ")),
        }
    }
}
