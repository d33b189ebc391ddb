//! The order that the controller writes into a Node, and the outcome that the node writes there. Both are annotations
//! with JSON.

use kops_agent_spec::terminal::shortened;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::wanted::{DrainMode, Rollout};
use kops_agent_spec::go_yaml::is_zero;
use kops_agent_spec::parse_timestamp;
use kops_agent_spec::redaction::Redactor;

/// The annotation in which the controller writes a node's [`Order`].
pub const ORDER: &str = "kops-agent/follow";
/// The annotation in which a node writes the [`Outcome`] of its order.
pub const OUTCOME: &str = "kops-agent/followed";
/// Maximum length of a problem, in characters. Every client that lists Nodes gets this text.
pub(super) const LONGEST_PROBLEM: usize = 500;
/// Maximum length of an annotation that is parsed, in bytes. A kubelet can write any value into its own Node.
const LONGEST_ANNOTATION: usize = 4096;

/// The task that an order gives to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Take the current configuration of the group.
    Configuration,
    Reboot,
    /// Run another version of kops-agent.
    Program,
}

impl Task {
    /// Whether an order with this task expires. If a rollout is paused, the controller takes back its orders that expire. An order to take
    /// the current configuration does not expire, because a late change does no harm.
    pub fn expires(self) -> bool {
        self != Task::Configuration
    }
}

/// Tells one node to take the current configuration of its group, to reboot, or to run another version of kops-agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// The ID of the order's rollout.
    pub rollout: String,
    /// The attempt of the rollout. After the first attempt, the node retries a configuration that it has rolled back.
    pub attempt: u32,
    /// The hash of the configuration, or of the program file. If the state store has a different hash when the node acts, the node does not
    /// carry out the order.
    pub hash: String,
    /// The digest of the authorities that the node must trust after its run. Empty if the order brings no configuration, if the hash of the
    /// configuration covers the authorities, or if the node does not report its authorities. In these cases, authorities are not compared.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub authorities: String,
    pub drain: DrainMode,
    /// How many nodes of the group may be unavailable at a time. The node sends this number in its slot request.
    pub max_unavailable: u32,
    /// How long the node waits for each changed component to become healthy, in seconds.
    #[serde(default = "Rollout::health_timeout")]
    pub health_timeout: u32,
    /// Whether the node may return to a configuration that it ran earlier.
    #[serde(default)]
    pub may_go_back: bool,
    /// In an order to reboot, the ID of the boot that the reboot must end. Empty in other orders.
    #[serde(default, rename = "bootID", skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// Whether the node must run a different version of kops-agent, instead of taking a configuration. A version of kops-agent that does
    /// not know this field looks for a configuration with this hash, and finds none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub program: bool,
    /// When the order was written, in RFC 3339, by the controller's clock.
    pub at: String,
    /// The deadline for the node to begin, in RFC 3339. Empty in an order to take a configuration. Every other order without a deadline
    /// counts as expired.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub until: String,
}

/// The result of an [`Order`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    pub rollout: String,
    pub attempt: u32,
    pub hash: String,
    /// The value of [`Order::authorities`] in the order.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub authorities: String,
    #[serde(default, rename = "bootID", skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// The value of [`Order::program`] in the order.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub program: bool,
    /// Why the node did not carry out the order; empty if it did.
    #[serde(default)]
    pub problem: String,
}

impl Order {
    /// Parses an annotation; `None` if the value is not an order.
    pub fn read(annotation: &str) -> Option<Order> {
        read(annotation)
    }

    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub fn task(&self) -> Task {
        match self.boot_id.is_empty() {
            false => Task::Reboot,
            true if self.program => Task::Program,
            true => Task::Configuration,
        }
    }

    /// Whether both orders belong to the same attempt of a rollout. Orders to reboot must also end the same boot.
    pub(super) fn is_same(&self, other: &Order) -> bool {
        (&self.rollout, self.attempt, &self.boot_id) == (&other.rollout, other.attempt, &other.boot_id)
    }

    /// When the order was written; `None` if [`Order::at`] is not a valid time.
    pub fn time(&self) -> Option<OffsetDateTime> {
        parse_timestamp(&self.at)
    }

    /// The outcome of this order; `problem` is empty if the node carried out the order. The outcome hides credentials in the URLs
    /// of `problem`.
    pub fn outcome(&self, problem: &str) -> Outcome {
        Outcome {
            rollout: self.rollout.clone(),
            attempt: self.attempt,
            hash: self.hash.clone(),
            authorities: self.authorities.clone(),
            boot_id: self.boot_id.clone(),
            program: self.program,
            problem: shortened(&Redactor::default().text(problem), LONGEST_PROBLEM),
        }
    }
}

impl Outcome {
    /// Parses an annotation; `None` if the value is not an outcome. A kubelet can write any problem, so the problem becomes one line of
    /// limited length.
    pub fn read(annotation: &str) -> Option<Outcome> {
        let outcome: Outcome = read(annotation)?;
        Some(Outcome { problem: shortened(&outcome.problem, LONGEST_PROBLEM), ..outcome })
    }

    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether the node did not carry out an order to upgrade kops-agent. The node may still run the new version, with failing services.
    pub fn is_failed_upgrade(&self) -> bool {
        self.program && !self.problem.is_empty()
    }

    pub fn is_of(&self, order: &Order) -> bool {
        (&self.rollout, self.attempt, &self.hash, &self.authorities, &self.boot_id)
            == (&order.rollout, order.attempt, &order.hash, &order.authorities, &order.boot_id)
    }
}

fn read<T: for<'de> Deserialize<'de>>(annotation: &str) -> Option<T> {
    if annotation.len() > LONGEST_ANNOTATION {
        return None;
    }
    serde_json::from_str(annotation).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn order() -> Order {
        Order {
            rollout: "r-1".into(),
            attempt: 1,
            hash: "b=".into(),
            authorities: "d0".into(),
            drain: DrainMode::Auto,
            max_unavailable: 1,
            health_timeout: 300,
            may_go_back: false,
            boot_id: String::new(),
            program: false,
            at: "2026-11-29T00:00:00Z".into(),
            until: String::new(),
        }
    }

    #[test]
    fn an_order_and_its_outcome_are_read_as_written() {
        let order = order();
        for order in [&order, &Order { program: true, ..order.clone() }] {
            assert_eq!(Order::read(&order.text()).as_ref(), Some(order));
        }
        let outcome = order.outcome("kubelet is dead");
        assert!(outcome.is_of(&order) && !outcome.is_failed_upgrade());
        let of_program = Order { program: true, ..order.clone() };
        let [failed, done] = ["kubelet is dead", ""].map(|problem| of_program.outcome(problem).text());
        assert!(Outcome::read(&failed).unwrap().is_failed_upgrade());
        assert!(!Outcome::read(&done).unwrap().is_failed_upgrade());
        assert_eq!(Outcome::read(&outcome.text()), Some(outcome.clone()));
        for other in [
            Order { attempt: 2, ..order.clone() },
            Order { hash: "c=".into(), ..order.clone() },
            Order { authorities: "d1".into(), ..order.clone() },
            Order { authorities: String::new(), ..order.clone() },
            Order { boot_id: "b1".into(), ..order.clone() },
            Order { rollout: "r-2".into(), ..order },
        ] {
            assert!(!outcome.is_of(&other), "{other:?}");
        }
    }

    #[test]
    fn a_problem_from_a_kubelet_is_bounded_and_has_one_line() {
        let long = |length: usize| {
            format!(
                r#"{{"rollout": "r", "attempt": 1, "hash": "h", "problem": "a\nb{}"}}"#,
                "c".repeat(length)
            )
        };
        let problem = Outcome::read(&long(1000)).unwrap().problem;
        assert_eq!(problem.chars().count(), LONGEST_PROBLEM);
        assert!(!problem.contains('\n') && problem.ends_with("c…"), "{problem}");
        assert_eq!(order().outcome(&"c ".repeat(1000)).problem.chars().last(), Some('…'));
        assert_eq!(Outcome::read(&long(LONGEST_ANNOTATION)), None);
        assert_eq!(Outcome::read("[]"), None);
    }

    #[test]
    fn a_problem_has_no_credentials() {
        let problem = order().outcome("https://user:sesame@mirror/x answers 403").problem;
        assert!(!problem.contains("sesame"), "{problem}");
    }
}
