//! The change that waits for a node, in short. A node whose group has a newer configuration makes the plan that
//! `kops-agent plan --follow` shows, and publishes this summary in an annotation of its own Node.
//!
//! Many users can read Nodes, so the summary has names and counts, and no content. Root on a node can write any value into
//! the annotation of that Node, so reading it is strict and bounded.

use kops_agent_spec::terminal::one_line;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::annotation::{Annotation, SCHEMA_VERSION, Unread};
use super::message::is_hash;
use crate::pacing::{Versions, drains};
use kops_agent_spec::parse_timestamp;
use kops_agent_spec::redaction::Redactor;

/// The annotation with the summary of the node's plan.
pub const NEXT: &str = "kops-agent/next";
/// Maximum number of names in [`NextPlan::restarts`]. [`NextPlan::more_restarts`] counts the restarts whose names are omitted.
const MOST_RESTARTS: usize = 16;
/// Maximum length of the name of a unit or static pod, in bytes.
const LONGEST_NAME: usize = 100;
/// Maximum length of a version, in bytes.
const LONGEST_VERSION: usize = 50;
/// Maximum length of the problem, in characters.
const LONGEST_PROBLEM: usize = 500;

/// The change from a node's present configuration to the next configuration of its group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Next {
    schema_version: u32,
    /// When the node made the plan, in RFC 3339.
    pub at: String,
    /// `NodeupConfigHash` of the configuration that the node runs.
    pub runs: String,
    /// `NodeupConfigHash` of the next configuration.
    pub hash: String,
    pub outcome: Outcome,
}

/// The plan, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    Planned(NextPlan),
    /// Why the node cannot make the plan, or would not apply it.
    Problem(String),
}

/// A summary of a plan. The summary has only counts and names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NextPlan {
    /// The number of resources to create.
    pub create: u32,
    pub change: u32,
    pub remove: u32,
    /// The names of the units and static pods that restart, in the order of the plan's steps. A plan's summary shows the same names.
    pub restarts: Vec<String>,
    /// The number of restarts whose names `restarts` omits.
    #[serde(default)]
    pub more_restarts: u32,
    /// Whether the node needs a slot of its group for the change ([`crate::pacing`]).
    pub takes_slot: bool,
    /// The versions after the change.
    pub versions: Versions,
    /// Whether `--drain auto` drains the node for this change; `None` if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drains: Option<bool>,
}

impl Next {
    /// The summary of the plan for the change from the configuration `runs` to the configuration `hash`.
    pub fn planned(at: &str, runs: &str, hash: &str, plan: NextPlan) -> Next {
        Next::new(at, runs, hash, Outcome::Planned(plan))
    }

    /// The summary of a node that cannot plan the change from `runs` to `hash`, or would not apply it. `problem` is the reason. The caller
    /// has already hidden known secrets in `problem`; this function hides credentials in URLs.
    pub fn not_planned(at: &str, runs: &str, hash: &str, problem: &str) -> Next {
        let problem = one_line(&Redactor::default().text(problem), LONGEST_PROBLEM);
        Next::new(at, runs, hash, Outcome::Problem(problem))
    }

    fn new(at: &str, runs: &str, hash: &str, outcome: Outcome) -> Next {
        let [at, runs, hash] = [at, runs, hash].map(str::to_owned);
        Next { schema_version: SCHEMA_VERSION, at, runs, hash, outcome }
    }

    /// The annotation's value on a Node that runs these versions. `None` if readers would reject the value.
    pub fn value(&self, present: &Versions) -> Option<String> {
        let mut next = self.clone();
        if let Outcome::Planned(plan) = &mut next.outcome {
            plan.drains = drains(present, &plan.versions);
        }
        next.written()
    }

    /// Reads only the form that [`Next::value`] writes.
    pub fn read(value: &str) -> Result<Next, Unread> {
        Next::parsed(value)
    }

    /// Whether `other` is the same change. The times of both plans, and the configurations that the nodes run now, may differ.
    pub fn is_same_change(&self, other: &Next) -> bool {
        self.hash == other.hash && self.outcome == other.outcome
    }

    /// When the node made the plan; `None` if [`Next::at`] is not a valid time.
    pub fn made_at(&self) -> Option<OffsetDateTime> {
        parse_timestamp(&self.at)
    }
}

impl Annotation for Next {
    const NAME: &'static str = NEXT;
    const LONGEST: usize = 4096;

    fn schema_version(&self) -> u32 {
        self.schema_version
    }

    fn is_bounded(&self) -> bool {
        self.made_at().is_some() && is_hash(&self.runs) && is_hash(&self.hash) && self.outcome.is_bounded()
    }
}

impl Outcome {
    fn is_bounded(&self) -> bool {
        match self {
            Outcome::Problem(problem) => {
                !problem.is_empty() && *problem == one_line(problem, LONGEST_PROBLEM)
            }
            Outcome::Planned(plan) => {
                let versions = [&plan.versions.kubelet, &plan.versions.containerd];
                plan.restarts.len() <= MOST_RESTARTS
                    && plan.restarts.iter().all(|name| is_plain(name, LONGEST_NAME) && !name.is_empty())
                    && versions.into_iter().all(|version| is_plain(version, LONGEST_VERSION))
            }
        }
    }
}

impl NextPlan {
    /// Adds the names of these restarts, as many as fit, and the number of the restarts whose names do not fit.
    #[must_use]
    pub fn with_restarts(mut self, restarts: Vec<String>) -> NextPlan {
        let all = restarts.len();
        let named = restarts.into_iter().filter(|name| is_plain(name, LONGEST_NAME));
        self.restarts = named.take(MOST_RESTARTS).collect();
        self.more_restarts = u32::try_from(all - self.restarts.len()).unwrap_or(u32::MAX);
        self
    }
}

/// Whether a text is printable ASCII of at most `longest` bytes. Real versions and names of units and static pods are
/// printable ASCII.
fn is_plain(text: &str, longest: usize) -> bool {
    text.len() <= longest && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const AT: &str = "2026-11-26T04:05:06Z";
    const HASH: &str = "3yUaBzOeXkF8m0qLrTtV1wPq9nGh2sJd5cRb7vYx4Zk=";

    fn plan(restarts: &[&str]) -> NextPlan {
        let versions = Versions { kubelet: "1.36.0".into(), containerd: "2.1.4".into() };
        let restarts = restarts.iter().map(|name| (*name).to_owned()).collect();
        NextPlan { takes_slot: true, versions, ..NextPlan::default() }.with_restarts(restarts)
    }

    #[test]
    fn a_plan_is_reported_in_counts_and_names() {
        let next = Next::planned(AT, "a=", HASH, plan(&["kubelet.service", "logrotate.timer"]));
        let value = next.value(&Versions { kubelet: "v1.35.0".into(), containerd: String::new() }).unwrap();
        let told: Value = serde_json::from_str(&value).unwrap();
        let expected = json!({
            "schemaVersion": 1, "at": AT, "runs": "a=", "hash": HASH, "outcome": {"planned": {
                "create": 0, "change": 0, "remove": 0, "restarts": ["kubelet.service", "logrotate.timer"], "moreRestarts": 0,
                "takesSlot": true, "versions": {"kubelet": "1.36.0", "containerd": "2.1.4"}, "drains": true,
            }},
        });
        assert_eq!(told, expected);
        let Outcome::Planned(read) = Next::read(&value).unwrap().outcome else { panic!("{value}") };
        assert_eq!((read.drains, read.takes_slot), (Some(true), true));
    }

    #[test]
    fn a_reason_hides_credentials() {
        let next = Next::not_planned(AT, "a=", HASH, "https://user:sesame@mirror/x\nanswers 403");
        let value = next.value(&Versions::default()).unwrap();
        assert!(!value.contains("sesame") && value.contains("answers 403"), "{value}");
    }

    #[test]
    fn the_longest_summary_fits() {
        // JSON escapes each backslash, so these names double in length.
        let name = |number: usize| format!("{number:\\>width$}", width = LONGEST_NAME);
        let mut names: Vec<String> = (0..500).map(name).collect();
        names.push("x".repeat(LONGEST_NAME + 1));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let next = Next::planned(AT, &"a".repeat(100), &"b".repeat(100), plan(&names));
        let value = next.value(&Versions::default()).unwrap();
        let Outcome::Planned(read) = Next::read(&value).unwrap().outcome else { panic!("{value}") };
        assert_eq!(read.restarts.len() + read.more_restarts as usize, 501);
        for character in ["\"", "\u{ffff}", "😀", "\n"] {
            let next = Next::not_planned(AT, &"a".repeat(100), &"b".repeat(100), &character.repeat(1 << 16));
            assert!(next.value(&Versions::default()).unwrap().len() <= Next::LONGEST, "{character:?}");
        }
    }

    #[test]
    fn annotations_of_another_form_are_rejected() {
        let value = Next::planned(AT, "a=", "b=", plan(&["a.service"])).value(&Versions::default()).unwrap();
        let with = |change: &dyn Fn(&mut Value)| {
            let mut told: Value = serde_json::from_str(&value).unwrap();
            change(&mut told);
            Next::read(&told.to_string())
        };
        assert!(with(&|_| {}).is_ok());
        let changes: [&dyn Fn(&mut Value); 9] = [
            &|told| told["schemaVersion"] = 2.into(),
            &|told| told["other"] = 1.into(),
            &|told| told["at"] = "soon".into(),
            &|told| told["hash"] = "\u{1b}[2J".into(),
            &|told| told["outcome"]["planned"]["create"] = (-1).into(),
            &|told| told["outcome"]["planned"]["other"] = 1.into(),
            &|told| told["outcome"]["planned"]["restarts"] = json!(["a\u{1b}[2J"]),
            &|told| told["outcome"]["planned"]["restarts"] = json!(vec!["a"; MOST_RESTARTS + 1]),
            &|told| told["outcome"] = json!({"problem": "a\nb"}),
        ];
        for change in changes {
            assert_eq!(with(change), Err(Unread::OtherForm { name: NEXT }));
        }
        let too_long = Unread::TooLong { name: NEXT, longest: Next::LONGEST };
        assert_eq!(Next::read(&" ".repeat(Next::LONGEST + 1)), Err(too_long));
    }

    proptest! {
        #[test]
        fn anything_is_read(value in any::<String>()) {
            let _ = Next::read(&value);
        }
    }
}
