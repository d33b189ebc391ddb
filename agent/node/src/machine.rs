//! The machine of a run, and the files that earlier runs left on it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kops_agent_host::{Applied, Decided, Host, Lock, Mark, Record};
use kops_agent_plan::desired::KUBELET_KUBECONFIG;
use kops_agent_process::program;
use kops_agent_process::service_manager;
use kops_agent_source::bootstrap_client::{self, LeftBy};
use kops_agent_spec::facts::Facts;
use kops_agent_spec::failure::{Failure, Kind};

use super::remote;
use crate::failure::kind_of;
use crate::redaction::error_text;
use kops_agent_source::Before;

/// The pause between two tries to take a lock that another run has.
const LOCK_POLL: Duration = Duration::from_millis(500);

/// Records a failure of a run for `kops-agent status`, unless the run ended because this machine is already a node.
/// Returns the outcome unchanged.
pub fn noted<T>(root: &Path, outcome: Result<T>) -> Result<T> {
    if let Err(error) = &outcome
        && !bootstrap_client::is_already_registered(error)
    {
        note_failure(root, error);
    }
    outcome
}

/// Records a failure for `kops-agent status`. If the root is missing, nothing is recorded.
pub fn note_failure(root: &Path, error: &anyhow::Error) {
    let is_first = !has_record(root);
    if is_first && !root.is_dir() {
        return;
    }
    let note = || -> Result<()> {
        let (host, kind, problem) = (open(root)?, kind_of(error), error_text(error));
        let noted = match is_first {
            true => host.note_first_failure(kind, &problem),
            false => host.note_failure(kind, &problem),
        };
        Ok(noted?)
    };
    let Err(error) = note() else { return };
    let text = format!("the failure could not be noted for `kops-agent status`: {}", error_text(&error));
    match kind_of(&error) {
        // The run that has the lock records its own outcome.
        Kind::Locked => log::debug!("{text}"),
        // Only root can write the record. For any other user, this failure is expected, so it is not a warning.
        _ if is_first && !nix::unistd::geteuid().is_root() => log::debug!("{text}"),
        _ => log::warn!("{text}"),
    }
}

/// Whether an earlier run has written a record below `root`.
pub fn has_record(root: &Path) -> bool {
    root.join(Record::PATH.trim_start_matches('/')).exists()
}

/// Whether this machine or a different machine wrote the node's files below `root`. `facts` describes this machine. [`LeftBy::Unknown`] if
/// no applied state can be read.
pub fn left_by(root: &Path, facts: &Facts) -> LeftBy {
    let applied = || open(root)?.applied().map_err(anyhow::Error::from);
    let applied = if has_record(root) { applied().ok().flatten() } else { None };
    applied.map_or(LeftBy::Unknown, |applied| match applied.machine == facts.machine() {
        true => LeftBy::ThisMachine,
        false => LeftBy::AnotherMachine,
    })
}

/// The state of the record now. A later comparison with this state shows whether another run has changed the machine.
pub fn mark(root: &Path) -> Result<Mark> {
    if has_record(root) { Ok(open(root)?.record()?.mark()) } else { Ok(Mark::default()) }
}

pub fn kubeconfig(root: &Path) -> PathBuf {
    root.join(KUBELET_KUBECONFIG.trim_start_matches('/'))
}

/// The hashes that earlier runs got from the publishers of downloads. A run does not request these hashes again.
pub fn remembered_hashes(root: &Path) -> Result<BTreeMap<String, String>> {
    if has_record(root) { Ok(open(root)?.record()?.known_hashes) } else { Ok(BTreeMap::new()) }
}

/// The secrets and files of the state store that earlier runs used.
pub fn before(root: &Path) -> Result<Before> {
    // Reading must not create a missing root.
    if root.exists() { before_on(&open(root)?) } else { Ok(Before::Nothing) }
}

/// The secrets and files of the state store that earlier runs used, from the record and the last applied state.
pub fn before_on(host: &Host) -> Result<Before> {
    let applied = host.applied()?;
    let secrets =
        |applied: Applied| applied.secrets().into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    Ok(match (host.record()?.decided, applied.map(secrets)) {
        (Some(Decided { secrets: mut decided, without }), secrets) => {
            decided.extend(secrets.unwrap_or_default());
            Before::Known { secrets: decided, without }
        }
        (None, Some(secrets)) => Before::Known { secrets, without: BTreeSet::new() },
        (None, None) => match host.is_no_node_yet() {
            Ok(true) => Before::Nothing,
            Ok(false) => Before::Unclear,
            Err(error) => {
                log::debug!("cannot tell whether this machine has been a node: {error}");
                Before::Unclear
            }
        },
    })
}

/// Fails if the root is missing, for commands that must not create it.
pub fn must_exist(root: &Path) -> Result<()> {
    match root.is_dir() {
        true => Ok(()),
        false => {
            let problem = format!(
                "there is no machine below {}: this path is not a directory; check --root",
                root.display()
            );
            Err(Failure::new(Kind::NoMachine, problem).into())
        }
    }
}

/// Opens this machine if `root` is `/`. Otherwise opens the scratch root.
pub fn open(root: &Path) -> Result<Host> {
    Ok(if root == Path::new("/") {
        Host::machine()?.with_remote(Arc::new(remote::World))
    } else {
        Host::scratch(root)?
    })
}

/// Starts this program in a separate systemd unit, so that no other unit waits for it. A unit that is already running
/// continues.
pub fn run_apart(host: &Host, unit: &str, arguments: &[&str]) -> Result<()> {
    let program = program::path().context("finding the path of this program")?;
    let unnamed = || Failure::new(Kind::Io, "the path of this program is not UTF-8 text");
    let program = program.to_str().ok_or_else(unnamed)?;
    Ok(host.run_apart(unit, &[&[program], arguments].concat())?)
}

/// The uptime of this machine, proc_uptime(5); `Duration::MAX` if it is unknown.
pub(crate) fn uptime() -> Duration {
    let read = std::fs::read_to_string("/proc/uptime").ok();
    let seconds = read.and_then(|text| text.split_whitespace().next()?.parse().ok());
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(Duration::MAX)
}

/// Takes the machine's lock, so that no other run changes the machine. If another run has the lock, waits if `is_waited_for` is true, or
/// else fails.
pub async fn lock(is_waited_for: bool, host: &Host) -> Result<Lock> {
    let mut is_told = false;
    loop {
        match host.lock() {
            Err(locked @ kops_agent_host::Error::Locked { .. }) if is_waited_for => {
                if !std::mem::replace(&mut is_told, true) {
                    log::info!("waiting for another run: {locked}");
                }
                service_manager::doing(format_args!("waiting for another run: {locked}"));
                tokio::time::sleep(LOCK_POLL).await;
            }
            lock => return Ok(lock?),
        }
    }
}
