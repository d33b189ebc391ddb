//! The lines of `kops-agent config assets`, as text and as JSON.

use std::fmt;

use kops_agent_plan::doctor::Outcome;
use kops_agent_plan::needs::{Need, NeedKind};
use kops_agent_spec::urls::shown_url;
use serde::Serialize;

use super::Users;

/// A thing that the nodes need. A login in a URL is hidden.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listed<'a> {
    kind: NeedKind,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    distribution: Option<&'a str>,
    /// The publisher's URL of a file that comes from a mirror.
    #[serde(skip_serializing_if = "Option::is_none")]
    canonical: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mirrors: Vec<String>,
    /// Empty for the images of add-ons.
    instance_groups: Vec<&'a str>,
    architectures: Vec<&'static str>,
    #[serde(flatten)]
    check: Option<Check>,
    /// Whether the list is a check.
    #[serde(skip)]
    is_check: bool,
}

/// The outcome of the check of a file or an image. A greater check is worse.
#[derive(PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Check {
    status: Status,
    /// The problem of each server that was asked without success, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Status {
    Ok,
    /// No server has it, and at least one server gave no clear answer.
    Unknown,
    Missing,
}

impl<'a> Listed<'a> {
    pub(super) fn new(
        need: &'a Need,
        users: &'a Users,
        canonical: Option<&String>,
        is_check: bool,
        check: Option<Check>,
    ) -> Listed<'a> {
        let is_file = need.kind == NeedKind::File;
        Listed {
            kind: need.kind,
            name: if is_file { shown_url(&need.name) } else { need.name.clone() },
            sha256: need.sha256.as_deref(),
            distribution: need.distribution.as_deref(),
            canonical: canonical.map(|url| shown_url(url)),
            mirrors: need.mirrors.iter().map(|url| shown_url(url)).collect(),
            instance_groups: users.groups.iter().map(String::as_str).collect(),
            architectures: users.architectures.iter().copied().collect(),
            check,
            is_check,
        }
    }

    pub(super) fn status(&self) -> Option<Status> {
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

impl Check {
    /// The check of a file or an image whose servers gave these answers.
    pub(super) fn of(servers: Vec<(String, Outcome)>) -> Check {
        let is_one = servers.len() == 1;
        let mut status = Status::Missing;
        let mut problems = Vec::new();
        for (server, outcome) in servers {
            let why = match outcome {
                Outcome::Answers => {
                    status = Status::Ok;
                    continue;
                }
                Outcome::Unknown(why) => {
                    status = Status::Unknown;
                    why
                }
                Outcome::Fails(why) => why,
            };
            problems.push(if is_one { why } else { format!("{}: {why}", shown_url(&server)) });
        }
        Check { status, problems }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(outcomes: &[Outcome]) -> (Status, Vec<String>) {
        let servers = outcomes
            .iter()
            .enumerate()
            .map(|(number, outcome)| (format!("https://{number}"), outcome.clone()));
        let Check { status, problems } = Check::of(servers.collect());
        (status, problems)
    }

    #[test]
    fn one_server_that_has_it_is_enough_and_the_problems_of_others_stay() {
        let (fails, unknown) = (Outcome::Fails("404".into()), Outcome::Unknown("busy".into()));
        let told =
            |problems: &[&str]| problems.iter().map(|problem| (*problem).to_owned()).collect::<Vec<_>>();
        for (outcomes, status, problems) in [
            (vec![Outcome::Answers], Status::Ok, vec![]),
            (vec![unknown.clone(), Outcome::Answers], Status::Ok, told(&["https://0: busy"])),
            (vec![fails.clone()], Status::Missing, told(&["404"])),
            (
                vec![fails.clone(), fails.clone()],
                Status::Missing,
                told(&["https://0: 404", "https://1: 404"]),
            ),
            (vec![unknown.clone(), fails], Status::Unknown, told(&["https://0: busy", "https://1: 404"])),
        ] {
            assert_eq!(check(&outcomes), (status, problems), "{outcomes:?}");
        }
    }
}
