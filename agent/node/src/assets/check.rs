//! The outcome of the check of a file or an image.

use kops_agent_plan::doctor::Outcome;
use kops_agent_spec::urls::shown_url;
use serde::Serialize;

/// Checks are ordered from good to bad. So the maximum of several checks is the worst check.
#[derive(PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Check {
    pub status: Status,
    /// The problem of each server that was asked without success, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    Ok,
    /// No server is known to have the file or image. At least one server gave no clear answer.
    Unknown,
    Missing,
}

impl Check {
    /// The result for a file or an image. `servers` has the asked servers and their outcomes.
    pub(super) fn from_outcomes(servers: Vec<(String, Outcome)>) -> Check {
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
        let Check { status, problems } = Check::from_outcomes(servers.collect());
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
