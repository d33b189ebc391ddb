//! The report at the end of a run: it sets the condition `KopsConfigured` and the early warnings of this machine's Node,
//! with kubelet's own credentials.
//!
//! A failed report does not change how a run ends. The next run reports again, whether the boot, the timer or an operator
//! starts it. A machine that has just become a node has no Node yet, because kubelet registers it while the run ends. So
//! systemd starts this program again to report apart from the run.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use kops_agent_cluster::fleet::{
    Configuration, FirstCertificate, NodeReport, ObservedMachine, ProgramReport, Trouble, authorities_digest,
};
use kops_agent_host::facts::root_volume_gib;
use kops_agent_host::{Applied, Host, Record};
use kops_agent_kube::own_node::{self, Told, Untold, retried};
use kops_agent_net::retry::{Pauses, Retries};
use kops_agent_plan::desired::{CONTROLLER_UNIT, KUBELET_KUBECONFIG};
use kops_agent_plan::following::Followed;
use kops_agent_plan::resolve::KUBERNETES_CA;
use kops_agent_process::program::{self, with_path_in_commands};
use kops_agent_process::version::VERSION;
use kops_agent_spec::additional_parts_of_machine;
use kops_agent_spec::facts::cloud_of_machine;
use kops_agent_spec::failure::{Failure, Kind};

use super::{machine, pacing, service_program};
use crate::doctor::deadline::run_in_thread;
use crate::doctor::early_warnings;
use crate::kops_version::user_data_of_instance;
use crate::redaction::error_text;

/// The name of this action in messages.
pub const TELLING: &str = "reporting this node's state to the cluster (condition KopsConfigured of its Node)";
/// How long the report to the cluster may delay the end of a run.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for reading the programs of this machine. A slow disk must not use up [`TIMEOUT`].
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(3);
/// The transient unit that reports to the cluster, so that the run need not wait.
const UNIT: &str = "kops-agent-fleet-tell.service";
/// Requests to the metadata service are not retried, because a report without instance metadata is still useful.
const ONCE: Retries = Retries {
    deadline: Duration::ZERO,
    attempt: Duration::from_secs(1),
    pauses: Pauses { first: Duration::ZERO, longest: Duration::ZERO },
};
/// How long [`UNIT`] waits for kubelet to register the machine, in seconds. On a first control plane, the API server
/// starts only after minutes.
const TELL_TIMEOUT: &str = "600";
/// The pause between two tries. After `reset` has removed the files that a try needs, the next try fails and ends the
/// unit. The short pause makes the unit end soon.
const PAUSE: Duration = Duration::from_secs(2);

/// The state of this machine at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The machine is as the run left it. The run may have failed.
    AsLeft,
    /// The machine has drifted, or differs from its wanted state.
    Differs,
}

/// Reports to the cluster at the end of a run. A failed report is only logged.
pub async fn tell(root: &Path, compared: Compared) {
    if let Err(untold) = tell_in_time(root, compared).await {
        note(&untold);
    }
}

/// Makes systemd start a unit that reports to the cluster. The run itself must not wait for the report, because other
/// units wait for the run, and kubelet, the API server or the network may be slow. If systemd cannot start the unit,
/// the run itself reports to the cluster.
pub async fn have_told(root: &Path) {
    if !is_machine(root) {
        return;
    }
    match tell_apart(root) {
        Ok(()) => log::debug!("{UNIT} continues {TELLING}"),
        Err(error) => {
            log::debug!("{UNIT} cannot continue {TELLING}: {}", error_text(&error));
            tell(root, Compared::AsLeft).await;
        }
    }
}

/// Whether the root belongs to a node. A scratch root does not. A machine whose kubelet has no kubeconfig is not a
/// node yet.
fn is_machine(root: &Path) -> bool {
    root == Path::new("/") && machine::has_record(root) && Path::new(KUBELET_KUBECONFIG).exists()
}

/// Reports to the cluster within `TIMEOUT`. Does nothing if the root does not belong to a node.
async fn tell_in_time(root: &Path, compared: Compared) -> Result<(), Untold> {
    if !is_machine(root) {
        return Ok(());
    }
    let in_time = tokio::time::timeout(TIMEOUT, tell_once(root, compared)).await;
    match in_time {
        Ok(Ok(told)) => {
            told.map(|node| log::debug!("the condition KopsConfigured of the Node {node} is up to date"))
        }
        Ok(Err(error)) => {
            log::debug!("{}", error_text(&error));
            Ok(())
        }
        Err(_) => Err(Untold::Unanswered(unanswered())),
    }
}

fn unanswered() -> String {
    format!("the API server does not answer within {} s", TIMEOUT.as_secs())
}

/// Logs a failed report. A process warns only once, even if it retries the run.
fn note(untold: &Untold) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    match untold.is_expected() || WARNED.swap(true, Ordering::Relaxed) {
        true => log::debug!("{TELLING}: {untold}"),
        false => log::warn!("{TELLING} failed: {untold}; the next run tries again"),
    }
}

/// Reports the state of this machine to the cluster. Retries for `within` while kubelet has not registered the
/// machine, or the API server does not answer. Returns the name of the Node.
pub async fn tell_within(root: &Path, within: Duration) -> Result<String> {
    let tell = async || {
        // This report shows drift, which is visible on the machine. It does not show differences from the wanted
        // state, because it asks neither the store nor kops-controller.
        let is_changed = !machine::open(root)?.drift()?.is_empty();
        tell_once(root, if is_changed { Compared::Differs } else { Compared::AsLeft }).await
    };
    // The report is retried only if the API server does not answer, or has no Node for this machine yet. An error on
    // this machine is not retried.
    let told = retried(within, PAUSE, async || {
        tell().await.map_or_else(|error| Ok(Err(error)), |told| told.map(Ok))
    });
    told.await.context(TELLING)?
}

/// Reports the recorded state of this machine to the cluster. Returns the name of the Node. The outer error means
/// that this machine has no readable record of a run. The inner error says why the report failed.
pub async fn tell_once(root: &Path, compared: Compared) -> Result<Result<String, Untold>> {
    if !machine::has_record(root) {
        let problem = "this machine has no record of a run of kops-agent, so there is nothing to report";
        return Err(Failure::new(Kind::NotRecorded, problem).into());
    }
    let host = machine::open(root)?;
    let record = host.record().context("reading the record of earlier runs")?;
    let certificates = host.certificates().context("reading when this node's certificates expire")?;
    let applied = host.applied().context("reading the last applied configuration")?;
    let followed = applied.as_ref().and_then(|applied| applied.followed.as_ref());
    let applied_to = applied.as_ref().map_or("", |applied| applied.machine.as_str());
    let authorities = applied.as_ref().and_then(trusted_authorities);
    let is_real = root == Path::new("/");
    let machine = async { if is_real { observed_machine(applied_to).await } else { None } };
    let own = {
        let root = root.to_owned();
        run_in_thread(PROGRAM_TIMEOUT, move || own_program(&root))
    };
    let (machine, warnings, own) = tokio::join!(machine, early_warnings::observe(root, &certificates), own);
    let (agent_version, program) = own.unwrap_or_else(|why| {
        log::debug!("this report does not describe the program: {why}");
        (None, None)
    });
    // `certificates` is sorted by expiry. A certificate without an expiry is unreadable, and the report shows it as
    // drift.
    let mut dated = certificates.iter().filter_map(|of| FirstCertificate::from_expiry(&of.path, of.expires?));
    let report = NodeReport {
        first_certificate: dated.next(),
        agent_version,
        followed_from: followed.and_then(Followed::pinned_by_user_data).map(str::to_owned),
        machine,
        reboot: is_real.then(|| host.reboot_report()).flatten(),
        authorities,
        program,
        runs_controller: if is_real { runs_controller(&host) } else { None },
        warnings,
        ..report(record, compared)
    };
    let mut statement = report.statement();
    statement.message = with_path_in_commands(&statement.message).into_owned();
    let told = own_node::tell(&machine::kubeconfig(root), &statement).await;
    if let Ok(Told { is_left_cordoned: true, .. }) = &told {
        pacing::uncordon_left(root).await;
    }
    Ok(told.map(|told| told.node))
}

/// Ends the unit that reports the result of a run, and removes the early-warning conditions from this machine's Node. A
/// reset calls this before it stops kubelet and removes kubelet's credentials. A failure is only logged.
pub async fn withdraw_warnings(root: &Path) {
    if !is_machine(root) {
        return;
    }
    let ended = machine::open(root).and_then(|host| Ok(host.end_apart(UNIT)?));
    ended.unwrap_or_else(|error| log::debug!("{UNIT} does not run: {}", error_text(&error)));
    let in_time =
        tokio::time::timeout(TIMEOUT, own_node::withdraw_warnings(&machine::kubeconfig(root))).await;
    let problem = match in_time {
        Ok(Ok(())) => return,
        Ok(Err(untold)) if untold.is_expected() => {
            log::debug!("the Node of this machine has no early warnings to remove: {untold}");
            return;
        }
        Ok(Err(untold)) => untold.to_string(),
        Err(_) => unanswered(),
    };
    log::warn!(
        "the early warnings of this machine's Node cannot be removed: {problem}. The reset continues. A Node \
         that still exists after the reset keeps these warnings; delete the Node with kubectl"
    );
}

/// The digest of the `kubernetes-ca` authorities in the applied state. `None` if there are none.
pub fn trusted_authorities(applied: &Applied) -> Option<String> {
    authorities_digest(applied.trusted_certificates(KUBERNETES_CA)?)
}

/// Whether the service of control-plane mode runs on this machine. `None` if systemd does not answer, or is about to
/// restart the service. (The service ends itself when its configuration or kubeconfig changes.) With `None`, the report
/// leaves the Node's annotation `kops-agent/controller` unchanged.
fn runs_controller(host: &Host) -> Option<bool> {
    host.runs(CONTROLLER_UNIT)
        .inspect_err(|error| log::debug!("this report leaves out {CONTROLLER_UNIT}: {error}"))
        .ok()
        .flatten()
}

/// This program's version and its report for the Node. Both are `None` if the services of this machine run another
/// program, or if another program has replaced this one. The other program reports its own version, which this program
/// must not overwrite. If these checks fail, only the report is `None`.
fn own_program(root: &Path) -> (Option<String>, Option<ProgramReport>) {
    let report = || -> Result<Option<ProgramReport>> {
        if !program::is_in_place()? || !service_program::is_this_program(root)? {
            return Ok(None);
        }
        let sha256 = program::sha256()?;
        Ok(Some(ProgramReport::new(VERSION, sha256).unchecked(machine::open(root)?.is_unchecked(sha256)?)))
    };
    match report() {
        Ok(report) => (report.is_some().then(|| VERSION.to_owned()), report),
        Err(error) => {
            log::debug!("this report does not describe the program: {}", error_text(&error));
            (Some(VERSION.to_owned()), None)
        }
    }
}

/// The part of the report that describes the machine. `applied_to` is the identity of the machine. It contains the name
/// of the cloud. `None` if the cloud's metadata service does not answer.
async fn observed_machine(applied_to: &str) -> Option<ObservedMachine> {
    let by_cloud = match cloud_of_machine(applied_to) {
        Some(provider) => kops_agent_cloud::for_provider(provider).machine(ONCE).await,
        None => Ok(ObservedMachine::new(None, None)),
    };
    match by_cloud {
        Ok(machine) => {
            let root = Path::new("/");
            let user_data = user_data_of_instance(root);
            let additional = user_data.and_then(|user_data| additional_parts_of_machine(&user_data));
            Some(machine.with_local_parts(root_volume_gib(root), additional))
        }
        Err(error) => {
            log::debug!("this report does not describe the machine: {error}");
            None
        }
    }
}

/// Makes systemd start [`UNIT`]. No other unit waits for this unit. If the unit already runs, its next try reports
/// the new state.
fn tell_apart(root: &Path) -> Result<()> {
    machine::run_apart(&machine::open(root)?, UNIT, &["fleet", "tell", "--timeout", TELL_TIMEOUT])
}

fn report(record: Record, compared: Compared) -> NodeReport {
    let Record { config_hash, converged_since, failure, rolled_back, superseded, .. } = record;
    // The record of a rolled-back run has both a rollback and a failure. Only the rollback is reported.
    let is_rollback = rolled_back.as_ref().is_some_and(|rolled_back| {
        failure.as_ref().is_none_or(|failure| failure.problem.contains(&rolled_back.problem))
    });
    let trouble = match (failure, rolled_back) {
        (_, Some(rolled_back)) if is_rollback => Some(Trouble::RolledBack {
            at: rolled_back.at,
            tried: rolled_back.config_hash,
            problem: rolled_back.problem,
        }),
        (Some(failure), _) => Some(Trouble::RunFailed { at: failure.at, problem: failure.problem }),
        _ if compared == Compared::Differs => Some(Trouble::Differs),
        _ => None,
    };
    let since = converged_since.unwrap_or_default();
    let next = superseded.as_ref().and_then(|by| by.next.clone());
    NodeReport {
        runs: (!config_hash.is_empty()).then_some(Configuration { hash: config_hash, since }),
        superseded_by: superseded.map(|by| Configuration { hash: by.by, since: by.since }),
        next,
        trouble,
        ..NodeReport::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_host::OrderedProgram;
    use serde_json::{Value, json};

    use super::*;

    fn reported(mut record: Value, compared: Compared) -> NodeReport {
        record["configHash"] = "a=".into();
        record["convergedSince"] = "2026-01-01T00:00:00Z".into();
        record["resources"] = json!({});
        report(serde_json::from_value(record).unwrap(), compared)
    }

    #[test]
    fn a_record_of_a_healthy_node_reports_its_configuration() {
        let runs = Configuration { hash: "a=".into(), since: "2026-01-01T00:00:00Z".into() };
        let expected = NodeReport { runs: Some(runs), ..NodeReport::default() };
        assert_eq!(reported(json!({}), Compared::AsLeft), expected);
        let record = json!({"superseded": {"since": "2026-02-01T00:00:00Z", "by": "b="}});
        let by = Configuration { hash: "b=".into(), since: "2026-02-01T00:00:00Z".into() };
        assert_eq!(reported(record, Compared::AsLeft), NodeReport { superseded_by: Some(by), ..expected });
    }

    #[test]
    fn the_last_trouble_is_reported() {
        let failure = |problem: &str| json!({"at": "t1", "problem": problem});
        let rolled_back = json!({"at": "t2", "configHash": "b=", "backTo": "a=", "desired": "", "problem": "kubelet is dead"});
        let is_rollback = |report: NodeReport| matches!(report.trouble, Some(Trouble::RolledBack { .. }));
        let is_failure = |report: NodeReport| matches!(report.trouble, Some(Trouble::RunFailed { .. }));
        assert!(is_failure(reported(json!({"failure": failure("no network")}), Compared::Differs)));
        assert!(is_rollback(reported(json!({"rolledBack": rolled_back}), Compared::AsLeft)));
        let both = |problem: &str| json!({"failure": failure(problem), "rolledBack": rolled_back});
        assert!(is_rollback(reported(both("x: kubelet is dead; rolled back"), Compared::AsLeft)));
        assert!(is_failure(reported(both("no network"), Compared::AsLeft)), "it has failed otherwise since");
        assert_eq!(reported(json!({}), Compared::Differs).trouble, Some(Trouble::Differs));
    }

    #[test]
    fn a_machine_that_has_not_converged_runs_nothing() {
        assert_eq!(report(Record::default(), Compared::AsLeft), NodeReport::default());
    }

    #[test]
    fn a_report_names_an_unchecked_program() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::scratch(root.path()).unwrap();
        let (version, program) = own_program(root.path());
        assert_eq!(version.as_deref(), Some(VERSION), "the machine has no services");
        assert!(program.is_some(), "a version without its program counts as an older kops-agent");

        let is_unchecked = || own_program(root.path()).1.unwrap().value().unwrap().contains("unchecked");
        let sha256 = program::sha256().unwrap();
        host.note_check(OrderedProgram { sha256, file: "f=" }).unwrap();
        assert!(is_unchecked());
        host.note_checked(sha256).unwrap();
        assert!(!is_unchecked());
    }

    #[tokio::test]
    async fn a_scratch_root_tells_no_cluster_of_itself() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(tell_in_time(root.path(), Compared::AsLeft).await, Ok(()));
        let error = tell_once(root.path(), Compared::AsLeft).await.unwrap_err();
        assert!(error.to_string().contains("nothing to report"), "{error}");
    }
}
