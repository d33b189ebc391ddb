//! The condition `KopsConfigured` of a Node: what a node says of itself, by what its runs have recorded.

use serde_json::{Value, json};

use super::certificate::{FIRST_CERTIFICATE, FirstCertificate};
use super::message::{Configuration, Told};
use crate::redaction::Redactor;

/// The annotation of the version of the agent.
pub const AGENT_VERSION: &str = "kops-agent/version";
/// The type of the condition.
pub const CONDITION: &str = "KopsConfigured";

/// What a machine knows of itself as a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeReport {
    /// The configuration to which it last converged; `None` before it did.
    pub runs: Option<Configuration>,
    /// The configuration that machines get which take the place of this one, if that is another.
    pub superseded_by: Option<Configuration>,
    /// What is wrong, if anything is.
    pub trouble: Option<Trouble>,
    /// Which of its certificates expires first; `None` where it has none.
    pub first_certificate: Option<FirstCertificate>,
    /// The version of the agent on it.
    pub agent_version: String,
}

/// What is wrong with a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    RunFailed {
        /// When, in RFC 3339.
        at: String,
        /// With what, and what to do about it.
        problem: String,
    },
    /// A change was taken back, and the cluster has wanted nothing else since.
    RolledBack {
        /// When, in RFC 3339.
        at: String,
        /// `NodeupConfigHash` of what was tried.
        tried: String,
        /// What was wrong with it.
        problem: String,
    },
    /// It is not as it was left, or not as the cluster wants it.
    Differs,
}

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Whether it is the node that it must be.
    pub is_configured: bool,
    /// Why that is so, in one word.
    pub reason: &'static str,
    /// The same for people, with the hash of the configuration.
    pub message: String,
    /// Which of its certificates expires first; `None` where it has none.
    pub first_certificate: Option<FirstCertificate>,
    /// The version of the agent on it.
    pub agent_version: String,
}

/// What the Node has of the condition already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub status: String,
    /// Since when it has that, in RFC 3339.
    pub last_transition_time: String,
}

impl NodeReport {
    /// What such a node says of itself. Nodes are read by many: what is known to be secret was hidden when the problem was noted, and what
    /// lets one in of a URL is hidden here.
    pub fn statement(&self) -> Statement {
        let (reason, problem) = match &self.trouble {
            Some(Trouble::RunFailed { at, problem }) => {
                ("RunFailed", format!("the run of {at} failed: {problem}"))
            }
            Some(Trouble::RolledBack { at, tried, problem }) => {
                ("RolledBack", format!("{tried} was rolled back at {at}: {problem}"))
            }
            Some(Trouble::Differs) => (
                "Differs",
                "this node differs from what is wanted; `kops-agent verify` on it shows how".to_owned(),
            ),
            None if self.runs.is_none() => ("NotConverged", String::new()),
            None if self.superseded_by.is_some() => ("Superseded", String::new()),
            None => ("Converged", String::new()),
        };
        let told = Told {
            runs: self.runs.clone(),
            superseded_by: self.superseded_by.clone(),
            problem: Redactor::default().text(&problem),
        };
        let is_configured = self.runs.is_some() && self.trouble.is_none();
        Statement {
            is_configured,
            reason,
            message: told.message(),
            first_certificate: self.first_certificate.clone(),
            agent_version: self.agent_version.clone(),
        }
    }
}

impl Statement {
    /// A strategic merge patch of a Node's status, which touches this condition and the annotations of the agent alone:
    /// the API server keeps the conditions of other types, and takes annotations with a status, as kubelet sends them (upstream:
    /// `pkg/util/node/node.go`, `preparePatchBytesforNodeStatus`). `now` is in RFC 3339.
    pub fn patch(&self, known: Option<&Known>, now: &str) -> Value {
        let status = if self.is_configured { "True" } else { "False" };
        let since = known.filter(|known| known.status == status && !known.last_transition_time.is_empty());
        let since = since.map_or(now, |known| known.last_transition_time.as_str());
        // A null takes away what an earlier run has told.
        let certificate = self.first_certificate.as_ref().map(FirstCertificate::value);
        let annotations = json!({FIRST_CERTIFICATE: certificate, AGENT_VERSION: self.agent_version});
        json!({"metadata": {"annotations": annotations}, "status": {"conditions": [{
            "type": CONDITION, "status": status, "reason": self.reason, "message": self.message,
            "lastHeartbeatTime": now, "lastTransitionTime": since,
        }]}})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "3yUaBzOeXkF8m0qLrTtV1wPq9nGh2sJd5cRb7vYx4Zk=";

    fn runs() -> NodeReport {
        let runs = Configuration { hash: HASH.into(), since: "2026-01-02T03:04:05Z".into() };
        NodeReport { runs: Some(runs), ..NodeReport::default() }
    }

    #[test]
    fn a_node_that_has_converged_says_to_what() {
        let Statement { is_configured, reason, message, .. } = runs().statement();
        assert_eq!((is_configured, reason), (true, "Converged"));
        assert_eq!(message, format!("configuration {HASH} since 2026-01-02T03:04:05Z"));
    }

    #[test]
    fn a_node_that_is_superseded_is_configured_all_the_same() {
        let by = Configuration { hash: "next=".into(), since: "2026-02-02T00:00:00Z".into() };
        let statement = NodeReport { superseded_by: Some(by.clone()), ..runs() }.statement();
        assert_eq!((statement.is_configured, statement.reason), (true, "Superseded"));
        assert_eq!(Told::read(&statement.message).superseded_by, Some(by));
    }

    #[test]
    fn what_is_wrong_is_told_with_the_hash_that_still_runs() {
        let at = || "2026-03-03T00:00:00Z".to_owned();
        let failed = Trouble::RunFailed { at: at(), problem: "the store denies s3://b/c".into() };
        let rolled_back =
            Trouble::RolledBack { at: at(), tried: "x=".into(), problem: "kubelet is dead".into() };
        for (trouble, reason, told) in [
            (failed, "RunFailed", "the run of 2026-03-03T00:00:00Z failed: the store denies s3://b/c"),
            (rolled_back, "RolledBack", "x= was rolled back at 2026-03-03T00:00:00Z: kubelet is dead"),
            (Trouble::Differs, "Differs", "`kops-agent verify`"),
        ] {
            let statement = NodeReport { trouble: Some(trouble), ..runs() }.statement();
            assert_eq!((statement.is_configured, statement.reason), (false, reason));
            let read = Told::read(&statement.message);
            assert_eq!(read.runs, runs().runs);
            assert!(read.problem.contains(told), "{}", read.problem);
        }
    }

    #[test]
    fn a_machine_that_never_converged_is_not_configured() {
        let statement = NodeReport::default().statement();
        assert_eq!((statement.is_configured, statement.reason), (false, "NotConverged"));
    }

    #[test]
    fn nothing_secret_gets_into_a_node() {
        let problem = format!(
            "{HASH}: https://user:sesame@mirror/x answers 403 to https://a/b?signature=Zm9vYmFyYmF6cXV4c2VzYW1l"
        );
        let trouble = Some(Trouble::RunFailed { at: "now".into(), problem });
        let message = NodeReport { trouble, ..runs() }.statement().message;
        assert!(!message.contains("sesame") && !message.contains("Zm9v"), "{message}");
        assert_eq!(message.matches(HASH).count(), 2, "hashes of configurations are shown: {message}");
    }

    #[test]
    fn the_time_of_a_transition_is_that_of_the_change_of_status() {
        let known = |status: &str| Known { status: status.into(), last_transition_time: "before".into() };
        let times = |known: Option<Known>| {
            let patch = runs().statement().patch(known.as_ref(), "now");
            let condition = &patch["status"]["conditions"][0];
            ["lastTransitionTime", "lastHeartbeatTime"]
                .map(|time| condition[time].as_str().unwrap().to_owned())
        };
        assert_eq!(times(None), ["now", "now"]);
        assert_eq!(times(Some(known("False"))), ["now", "now"]);
        assert_eq!(times(Some(known("True"))), ["before", "now"]);
        let untold = Known { last_transition_time: String::new(), ..known("True") };
        assert_eq!(times(Some(untold)), ["now", "now"]);
    }

    #[test]
    fn the_patch_has_this_condition_and_the_agents_annotations_and_nothing_else() {
        let certificate = FirstCertificate::of("/var/lib/kubelet/kubeconfig", 0);
        let agent_version = "0.1.0 (abc)".to_owned();
        let report = NodeReport { first_certificate: certificate, agent_version, ..runs() };
        let patch = report.statement().patch(None, "now");
        let annotations = json!({"annotations": {FIRST_CERTIFICATE: "1970-01-01T00:00:00Z kubelet", AGENT_VERSION: "0.1.0 (abc)"}});
        assert_eq!(patch["metadata"], annotations);
        let without = runs().statement().patch(None, "now");
        assert_eq!(without["metadata"]["annotations"][FIRST_CERTIFICATE], Value::Null, "it is taken away");
        assert_eq!(patch.as_object().unwrap().len(), 2);
        assert_eq!(patch["status"].as_object().unwrap().len(), 1);
        assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 1);
        assert_eq!(patch["status"]["conditions"][0]["type"], CONDITION);
    }
}
