//! The condition `KopsConfigured` of a Node, with which a node reports the results of its runs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::authorities::AUTHORITIES;
use super::certificate::{FIRST_CERTIFICATE, FirstCertificate};
use super::early_warning::{EARLY_WARNINGS, EarlyWarning};
use super::machine::{MACHINE, ObservedMachine};
use super::message::{Configuration, Told};
use super::next::{NEXT, Next};
use super::program::{PROGRAM, ProgramReport};
use super::reboot::{REBOOT_REQUIRED, RebootReport};
use crate::pacing::Versions;
use kops_agent_spec::redaction::Redactor;

/// The annotation with the agent's version.
pub const AGENT_VERSION: &str = "kops-agent/version";
/// The annotation of a node that has replaced the configuration in its user-data with a different configuration of the group. The value is
/// the hash in the user-data.
pub const FOLLOWED_FROM: &str = "kops-agent/followed-from";
/// The annotation of a node on which the service of control-plane mode runs. Its value is [`RUNNING`].
pub const CONTROLLER: &str = "kops-agent/controller";
/// The value of the annotation [`CONTROLLER`].
pub const RUNNING: &str = "running";
pub const CONDITION: &str = "KopsConfigured";

/// The state of a node, as the node itself knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeReport {
    /// The configuration to which the machine last converged; `None` before the first convergence.
    pub runs: Option<Configuration>,
    /// The configuration that a new machine would get in place of this machine. Set only if it differs from this machine's
    /// configuration.
    pub superseded_by: Option<Configuration>,
    pub trouble: Option<Trouble>,
    /// The certificate that expires first; `None` if the node has no certificate.
    pub first_certificate: Option<FirstCertificate>,
    /// The version of the agent. `None` if the services of this machine run a different program, if another program has replaced this one,
    /// or if the check of this took too long; the annotation of an earlier report stays.
    pub agent_version: Option<String>,
    /// The change to the next configuration of the group. `None` if there is no newer configuration, or if no run has looked for a newer
    /// configuration.
    pub next: Option<Next>,
    /// `NodeupConfigHash` in the user-data, if the node has since taken a different configuration of its group.
    pub followed_from: Option<String>,
    /// The machine of the node. `None` if it was not observed this time; the annotation of an earlier report stays.
    pub machine: Option<ObservedMachine>,
    /// Whether the node requires a reboot. `None` if this was not observed; the annotation of an earlier report stays.
    pub reboot: Option<RebootReport>,
    /// The digest of the authorities that the node trusts. `None` if no run has converged the node.
    pub authorities: Option<String>,
    /// The program that runs the services of this machine and follows rollouts. `None` if this process runs a different program, or cannot
    /// read the program's file; the annotation of an earlier report stays.
    pub program: Option<ProgramReport>,
    /// Whether the service of control-plane mode runs. `None` if this was not observed; the annotation of an earlier report stays.
    pub runs_controller: Option<bool>,
    /// The early warnings of the node. If an early warning is missing here, its condition on the Node stays unchanged.
    pub warnings: Vec<EarlyWarning>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    RunFailed {
        /// Time of the failure, in RFC 3339.
        at: String,
        /// The error, and what to do about it.
        problem: String,
    },
    /// A change was rolled back, and the cluster's configuration has not changed since.
    RolledBack {
        /// Time of the rollback, in RFC 3339.
        at: String,
        /// `NodeupConfigHash` of the configuration that was rolled back.
        tried: String,
        /// The reason for the rollback.
        problem: String,
    },
    /// The node has drifted since its last run, or differs from the cluster's configuration.
    Differs,
}

/// The content of a node's conditions and annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Whether the node has converged and has no problem.
    pub is_configured: bool,
    /// The reason of the condition [`CONDITION`], one word.
    pub reason: &'static str,
    /// The message of the condition [`CONDITION`], with the hash of the configuration.
    pub message: String,
    /// The certificate that expires first; `None` if the node has no certificate.
    pub first_certificate: Option<FirstCertificate>,
    /// The version of the agent. If this is `None`, the annotation of an earlier report stays.
    pub agent_version: Option<String>,
    /// The change to the next configuration of the group. `None` if there is no newer configuration, or if no run has looked for a newer
    /// configuration.
    pub next: Option<Next>,
    /// `NodeupConfigHash` in the user-data, if the node has since taken a different configuration of its group.
    pub followed_from: Option<String>,
    /// The machine of the node. `None` if it was not observed this time; the annotation of an earlier report stays.
    pub machine: Option<ObservedMachine>,
    /// Whether the node requires a reboot. `None` if this was not observed; the annotation of an earlier report stays.
    pub reboot: Option<RebootReport>,
    /// The digest of the authorities that the node trusts. `None` if no run has converged the node.
    pub authorities: Option<String>,
    /// The program that follows rollouts. If this is `None`, the annotation of an earlier report stays.
    pub program: Option<ProgramReport>,
    /// Whether the service of control-plane mode runs. If this is `None`, the annotation of an earlier report stays.
    pub runs_controller: Option<bool>,
    /// The early warnings of the node. If an early warning is missing here, its condition on the Node stays unchanged.
    pub warnings: Vec<EarlyWarning>,
}

/// The conditions that the Node already has, by type.
pub type CurrentConditions = BTreeMap<&'static str, CurrentCondition>;

/// A condition that the Node already has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentCondition {
    pub status: String,
    /// Time of the last change of `status`, in RFC 3339.
    pub last_transition_time: String,
}

impl NodeReport {
    /// The content of the conditions and annotations for this report. Credentials in URLs are hidden, because many users can read Nodes.
    /// Known secrets are already hidden: the run hid them when it recorded the problem.
    pub fn statement(&self) -> Statement {
        let (reason, problem) = match &self.trouble {
            Some(Trouble::RunFailed { at, problem }) => {
                ("RunFailed", format!("the run of {at} failed: {problem}"))
            }
            Some(Trouble::RolledBack { at, tried, problem }) => {
                ("RolledBack", format!("the configuration {tried} was rolled back at {at}: {problem}"))
            }
            Some(Trouble::Differs) => (
                "Differs",
                "this node differs from its configuration; `kops-agent verify` on the node shows the differences".to_owned(),
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
            next: self.next.clone(),
            followed_from: self.followed_from.clone(),
            machine: self.machine.clone(),
            reboot: self.reboot.clone(),
            authorities: self.authorities.clone(),
            program: self.program.clone(),
            runs_controller: self.runs_controller,
            warnings: self.warnings.clone(),
        }
    }
}

impl Statement {
    /// A strategic merge patch of a Node's status that changes only the agent's conditions and annotations. The API server keeps the
    /// conditions of other types. The API server also accepts annotations in a patch of the status, as kubelet sends them (upstream:
    /// `pkg/util/node/node.go`, `preparePatchBytesforNodeStatus`). `versions` are the component versions that the Node reports now. `now`
    /// is in RFC 3339.
    pub fn patch(&self, known: &CurrentConditions, versions: &Versions, now: &str) -> Value {
        let status = if self.is_configured { "True" } else { "False" };
        let mut conditions = vec![condition(known, CONDITION, status, (self.reason, &self.message), now)];
        conditions.extend(self.warnings.iter().map(|EarlyWarning { condition: kind, reason, message }| {
            condition(known, kind, reason.status(), (reason.name(), message), now)
        }));
        // A null removes the annotation of an earlier run.
        let certificate = self.first_certificate.as_ref().map(FirstCertificate::value);
        let next = self.next.as_ref().and_then(|next| next.value(versions));
        let mut annotations = json!({
            FIRST_CERTIFICATE: certificate, NEXT: next, FOLLOWED_FROM: self.followed_from, AUTHORITIES: self.authorities,
        });
        if let Some(version) = &self.agent_version {
            annotations[AGENT_VERSION] = json!(version);
        }
        if let Some(machine) = &self.machine {
            annotations[MACHINE] = json!(machine.value());
        }
        if let Some(reboot) = &self.reboot {
            annotations[REBOOT_REQUIRED] = json!(reboot.value());
        }
        if let Some(program) = &self.program {
            annotations[PROGRAM] = json!(program.value());
        }
        if let Some(runs_controller) = self.runs_controller {
            annotations[CONTROLLER] = json!(runs_controller.then_some(RUNNING));
        }
        json!({"metadata": {"annotations": annotations}, "status": {"conditions": conditions}})
    }
}

/// Makes a condition for a Node. If the status does not change, the time of the last transition does not change either.
fn condition(
    known: &CurrentConditions,
    kind: &str,
    status: &str,
    (reason, message): (&str, &str),
    now: &str,
) -> Value {
    let since = known.get(kind);
    let since = since.filter(|known| known.status == status && !known.last_transition_time.is_empty());
    let since = since.map_or(now, |known| known.last_transition_time.as_str());
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastHeartbeatTime": now, "lastTransitionTime": since,
    })
}

/// A strategic merge patch of a Node's status that removes all early warnings. A missing condition is no error.
pub fn removed_warnings() -> Value {
    let removed = EARLY_WARNINGS.map(|kind| json!({"type": kind, "$patch": "delete"}));
    json!({"status": {"conditions": removed}})
}

#[cfg(test)]
mod tests {
    use super::super::early_warning::{CLOCK_UNSYNCHRONIZED, DISK_PRESSURE_SOON, WarningReason};
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
    fn a_trouble_is_reported_with_the_hash_that_still_runs() {
        let at = || "2026-03-03T00:00:00Z".to_owned();
        let failed = Trouble::RunFailed { at: at(), problem: "the store denies s3://b/c".into() };
        let rolled_back =
            Trouble::RolledBack { at: at(), tried: "x=".into(), problem: "kubelet is dead".into() };
        for (trouble, reason, told) in [
            (failed, "RunFailed", "the run of 2026-03-03T00:00:00Z failed: the store denies s3://b/c"),
            (
                rolled_back,
                "RolledBack",
                "the configuration x= was rolled back at 2026-03-03T00:00:00Z: kubelet is dead",
            ),
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
        let known =
            |status: &str| CurrentCondition { status: status.into(), last_transition_time: "before".into() };
        let times = |known: Option<CurrentCondition>| {
            let known = known.into_iter().map(|known| (CONDITION, known)).collect();
            let patch = runs().statement().patch(&known, &Versions::default(), "now");
            let condition = &patch["status"]["conditions"][0];
            ["lastTransitionTime", "lastHeartbeatTime"]
                .map(|time| condition[time].as_str().unwrap().to_owned())
        };
        assert_eq!(times(None), ["now", "now"]);
        assert_eq!(times(Some(known("False"))), ["now", "now"]);
        assert_eq!(times(Some(known("True"))), ["before", "now"]);
        let untold = CurrentCondition { last_transition_time: String::new(), ..known("True") };
        assert_eq!(times(Some(untold)), ["now", "now"]);
    }

    #[test]
    fn the_patch_has_this_condition_and_the_agents_annotations_and_nothing_else() {
        let certificate = FirstCertificate::from_expiry("/var/lib/kubelet/kubeconfig", 0);
        let agent_version = Some("0.1.0 (abc)".to_owned());
        let next = Next::not_planned("2026-01-01T00:00:00Z", "a=", "b=", "no network");
        let value = next.value(&Versions::default());
        let (next, followed_from) = (Some(next), Some("c=".to_owned()));
        let machine = ObservedMachine::new(Some("m5.large".into()), Some("ami-1".into()));
        let observed = machine.value();
        let reboot = RebootReport::new("b1", &["packages ask for it: libc6".to_owned()]);
        let required = reboot.value();
        let program = ProgramReport::new("0.1.0 (abc)", &"a".repeat(64));
        let runs_program = program.value();
        let (machine, reboot, program) = (Some(machine), Some(reboot), Some(program));
        let report = NodeReport {
            first_certificate: certificate,
            agent_version,
            next,
            followed_from,
            machine,
            reboot,
            authorities: Some("d0".to_owned()),
            program,
            runs_controller: Some(true),
            ..runs()
        };
        let known = CurrentConditions::new();
        let patch = report.statement().patch(&known, &Versions::default(), "now");
        let annotations = json!({"annotations": {
            FIRST_CERTIFICATE: "1970-01-01T00:00:00Z kubelet", AGENT_VERSION: "0.1.0 (abc)", NEXT: value, FOLLOWED_FROM: "c=",
            MACHINE: observed, REBOOT_REQUIRED: required, AUTHORITIES: "d0", PROGRAM: runs_program, CONTROLLER: RUNNING,
        }});
        assert_eq!(patch["metadata"], annotations);
        let without = runs().statement().patch(&known, &Versions::default(), "now");
        for annotation in [FIRST_CERTIFICATE, NEXT, FOLLOWED_FROM, AUTHORITIES] {
            assert_eq!(without["metadata"]["annotations"][annotation], Value::Null, "it is taken away");
        }
        for annotation in [AGENT_VERSION, MACHINE, REBOOT_REQUIRED, PROGRAM, CONTROLLER] {
            let kept = without["metadata"]["annotations"].get(annotation);
            assert_eq!(kept, None, "what was not observed changes nothing");
        }
        let stopped = NodeReport { runs_controller: Some(false), ..runs() };
        let stopped = stopped.statement().patch(&known, &Versions::default(), "now");
        assert_eq!(
            stopped["metadata"]["annotations"].get(CONTROLLER),
            Some(&Value::Null),
            "it is taken away"
        );
        assert_eq!(patch.as_object().unwrap().len(), 2);
        assert_eq!(patch["status"].as_object().unwrap().len(), 1);
        assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 1);
        assert_eq!(patch["status"]["conditions"][0]["type"], CONDITION);
    }

    #[test]
    fn early_warnings_are_in_the_same_patch_each_with_its_own_transition() {
        let warning = |condition, reason| EarlyWarning::new(condition, reason, "said");
        let warnings = vec![
            warning(DISK_PRESSURE_SOON, WarningReason::DiskSpaceLow),
            warning(CLOCK_UNSYNCHRONIZED, WarningReason::NotObserved),
        ];
        let known =
            |status: &str| CurrentCondition { status: status.into(), last_transition_time: "before".into() };
        let known = CurrentConditions::from([
            (CONDITION, known("True")),
            (DISK_PRESSURE_SOON, known("False")),
            (CLOCK_UNSYNCHRONIZED, known("Unknown")),
        ]);
        let patch = NodeReport { warnings, ..runs() }.statement().patch(&known, &Versions::default(), "now");
        let conditions = patch["status"]["conditions"].as_array().unwrap();
        let shown = |at: usize| {
            let fields = ["type", "status", "reason", "lastTransitionTime"];
            fields.map(|field| conditions[at][field].as_str().unwrap())
        };
        assert_eq!(conditions.len(), 3);
        assert_eq!(shown(0), [CONDITION, "True", "Converged", "before"]);
        assert_eq!(shown(1), ["KopsAgentDiskPressureSoon", "True", "DiskSpaceLow", "now"]);
        assert_eq!(shown(2), ["KopsAgentClockUnsynchronized", "Unknown", "NotObserved", "before"]);
        assert_eq!(conditions[1]["message"], "said");
    }

    #[test]
    fn only_early_warnings_are_removed() {
        let patch = removed_warnings();
        let conditions = patch["status"]["conditions"].as_array().unwrap();
        let types: Vec<&str> = conditions.iter().filter_map(|removed| removed["type"].as_str()).collect();
        assert_eq!(types, EARLY_WARNINGS);
        assert!(conditions.iter().all(|removed| removed["$patch"] == "delete"), "{patch}");
    }
}
