//! What a machine is put right by while what is wanted of it now is not known, or may not be applied to it: the state
//! that was last applied.
//!
//! Between `kops update cluster` and the rolling update every machine that is pinned to a configuration is superseded:
//! the store has the next one, which is for the machines that take its place. A store may be out of reach, deny what it
//! gave before, or hold a mistake; kops-controller gives a Node that is ready nothing; a change was rolled back and is
//! still wanted; what a change needs cannot be downloaded or issued. None of that is a reason to leave drift, volumes and
//! certificates as they are.
//!
//! A change that an earlier run has begun and not ended is newer than what was last applied. It is never turned back by
//! that: components may run with it already, and only their health says to take it back, which is a rollback. So it is
//! carried on to its end from what the interrupted run has kept, and becomes what was last applied. Where it takes
//! something that is not at hand (a secret of a store that does not answer), the machine is left as it is, and is told to
//! be, until what is wanted can be read: half of each state is none that anything was tested with. For the same reason
//! nothing is put right in the very run in which a change failed half-way; the next goes on with it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kops_agent_host::{Applied, Error as HostError, Host, Report, Unfinished};
use kops_agent_pki::PemPair;
use kops_agent_plan::diff::{Keeping, Kept};
use kops_agent_plan::resource::Kind;
use kops_agent_plan::spec::{BootConfig, HashMismatch, Keyset};

use crate::bootstrap_client::{self, KopsController};
use crate::cli::{RootArgs, SpecArgs};
use crate::environment::Environment;
use crate::materials::{self, Materials, Read};
use crate::node::{self, Decision};
use crate::output::error_text;
use crate::retry::Retries;
use crate::source::derivation::SpecDiffers;
use crate::source::{StoreFiles, config_base};
use crate::store::{Found, Store, StoreError};

/// Why what was last applied is applied again, and not what is wanted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instead {
    /// Machines that are made from now on get the configuration of this hash; this one stays as it is until it is
    /// replaced.
    Superseded(String),
    /// kops-controller gives a Node that is ready nothing, and needs to give it nothing.
    Registered,
    /// What is wanted was tried and rolled back.
    Refused,
    /// What is wanted is not known, or cannot be applied, which is a failure.
    Failed,
}

impl Instead {
    /// What an error means to a machine that has converged to this.
    fn of(error: &anyhow::Error, applied: &Applied) -> Instead {
        let of_file = || {
            let found = error.chain().find_map(|cause| cause.downcast_ref::<HashMismatch>())?;
            Some((&found.expected, &found.actual))
        };
        let of_spec = || {
            let found = error.chain().find_map(|cause| cause.downcast_ref::<SpecDiffers>())?;
            // Otherwise kOps may have known something when it wrote the file that the spec never said.
            applied.is_proven.then_some((&found.expected, &found.actual))
        };
        match of_file().or_else(of_spec) {
            Some((expected, actual)) if *expected == applied.config_hash => {
                Instead::Superseded(actual.clone())
            }
            _ if bootstrap_client::is_already_registered(error) => Instead::Registered,
            _ if is_refusal(error) => Instead::Refused,
            _ => Instead::Failed,
        }
    }
}

fn is_refusal(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(HostError::FailedBefore(_))))
}

/// Whether what was last applied is applied in the place of what an error keeps from being known or applied. A change that
/// has begun and failed is none of that: the next run goes on with it.
///
/// # Errors
/// What is recorded of a change cannot be read.
pub fn stands_in_for(error: &anyhow::Error, host: &Host) -> Result<bool> {
    let Some(cause) = error.chain().find_map(|cause| cause.downcast_ref::<HostError>()) else {
        return Ok(true);
    };
    Ok(match cause {
        HostError::FailedBefore(_) => true,
        // Before the first write; that it was before that is seen from what is recorded.
        HostError::Download(_)
        | HostError::Certificate(_)
        | HostError::MissingSecret { .. }
        | HostError::Invalid { .. }
        | HostError::Path { .. } => host.unfinished_change()?.is_none(),
        _ => false,
    })
}

/// What a machine is compared with and put right by because of an error, and that error.
pub struct StandIn {
    /// Why it is that, and not what is wanted.
    pub instead: Instead,
    /// It.
    pub decision: Decision,
    /// What is wrong with what is wanted.
    pub error: anyhow::Error,
}

/// What was last applied, where a machine has converged and nothing is under way; `None` where that is not known of it.
///
/// # Errors
/// What was applied cannot be read.
pub async fn as_applied(args: &SpecArgs, host: &Host) -> Result<Option<Decision>> {
    let asked_for = anyhow::anyhow!("what was last applied is asked for");
    let decided = Box::pin(decide(args, host, &asked_for)).await?;
    Ok(decided.map(|(_, decision)| decision).filter(|decision| decision.is_last_applied))
}

/// What stands in for what an error keeps from being known or applied.
///
/// # Errors
/// The error, where nothing does; with what is wrong beside it where that cannot be told.
pub async fn stand_in(args: &SpecArgs, host: &Host, error: anyhow::Error) -> Result<StandIn> {
    match Box::pin(decide(args, host, &error)).await {
        Ok(Some((instead, decision))) => Ok(StandIn { instead, decision, error }),
        Ok(None) => Err(error),
        Err(other) => Err(both(error, &other)),
    }
}

/// An error, and that what was last applied could not be put right either.
pub fn both(error: anyhow::Error, other: &anyhow::Error) -> anyhow::Error {
    let other = error_text(other);
    error.context(format!("what was last applied could not be put right either ({other}), and before that"))
}

/// Puts a machine right by what was last applied, where an error that a run ended with leaves that to be done, and gives
/// the error back with what came of it.
pub async fn mend(args: &SpecArgs, root: &RootArgs, host: &Host, error: anyhow::Error) -> anyhow::Error {
    match stands_in_for(&error, host) {
        Ok(true) => {}
        Ok(false) => return error,
        Err(other) => return both(error, &other),
    }
    let StandIn { decision, error, .. } = match Box::pin(stand_in(args, host, error)).await {
        Ok(stand_in) => stand_in,
        Err(error) => return error,
    };
    match Box::pin(converge(root, host, &decision)).await {
        Ok(report) => match unmended(&report) {
            Some(other) => both(error, &other),
            None => error.context("this machine is left as it was last applied"),
        },
        Err(other) => both(error, &other),
    }
}

/// The state that stands in for the wanted one, and whether it is that of a change that was begun; `None` where there is
/// none.
fn state(host: &Host) -> Result<Option<(Applied, bool)>> {
    match host.unfinished_change()? {
        None => Ok(host.applied()?.map(|applied| (applied, false))),
        Some(Unfinished { state: Some(state) }) => Ok(Some((state, true))),
        Some(Unfinished { state: None }) => {
            log::warn!("{LEFT}, because no run has kept what it goes to");
            Ok(None)
        }
    }
}

/// What is told of a change that cannot be carried on.
const LEFT: &str = "a change was begun here that has not come to its end, and that cannot be carried on now: it is left as it is until what \
                    is wanted of this node is known";

/// Whether a change that was begun can be carried on to its end: nothing that is still to be written or issued is unknown.
fn is_carried_on(host: &Host, decision: &Decision) -> Result<bool> {
    let plan = node::plan(host, decision)?;
    let unknown = plan.kept.iter().filter(|kept| kept.keeping != Keeping::NotWanted);
    let is_unissued = |kept: &&Kept| kept.resource.kind == Kind::Certificate;
    let missing: Vec<String> = match unknown.clone().find(is_unissued) {
        Some(kept) => vec![line(kept)],
        None => {
            let ids = host.still_to_write(unknown.clone().map(|kept| &kept.resource))?;
            unknown.filter(|kept| ids.contains(&&kept.resource)).map(line).collect()
        }
    };
    if missing.is_empty() {
        log::info!(
            "this run goes on with the change that was begun here by an earlier one, from what that has kept of it"
        );
        return Ok(true);
    }
    log::warn!("{LEFT}:\n{}", missing.join("\n"));
    Ok(false)
}

fn line(kept: &Kept) -> String {
    format!("  {}: {}", kept.resource, kept.why)
}

/// What was last applied, decided again, where a machine has converged and its user-data is still for the same
/// instance group; `None` where it is not. A change that was begun since takes its place.
///
/// # Errors
/// What was applied cannot be read.
async fn decide(args: &SpecArgs, host: &Host, why: &anyhow::Error) -> Result<Option<(Instead, Decision)>> {
    // Without it there is no telling that this is the same machine still.
    let Ok(boot) = node::boot_config(&args.conf) else { return Ok(None) };
    let Some((applied, is_begun)) = state(host).context("reading what was last applied")? else {
        return Ok(None);
    };
    let is_same = applied.cluster == boot.cluster_name && applied.instance_group == boot.instance_group_name;
    let is_pinned_to_it =
        boot.nodeup_config_hash.is_empty() || boot.nodeup_config_hash == applied.config_hash;
    if !is_same || !is_pinned_to_it {
        return Ok(None);
    }
    let facts = match node::facts(args, &boot).await {
        Ok(facts) if facts.machine() == applied.machine => facts,
        Ok(facts) => {
            log::warn!(
                "what was last applied here was for another machine, or another use of this one ({}; this is {}): it is left alone",
                applied.machine,
                facts.machine()
            );
            return Ok(None);
        }
        Err(unobserved) => {
            log::warn!(
                "whether this is the machine that was last converged here cannot be told, so it is left as it is: {}",
                error_text(&unobserved)
            );
            return Ok(None);
        }
    };
    let applied = Arc::new(applied);
    let instead = Instead::of(why, &applied);
    let store = Arc::new(node::store(&args.store)?);
    let materials =
        Materials::of_applied(Arc::clone(&applied), read(args, host, &boot, &applied, why).await?)
            .with_environment(Environment::of_machine(&args.node_root).of_role(boot.instance_group_role));
    let record = host.record()?;
    let authorities = applied.trusted_certificates(kops_agent_plan::resolve::KUBERNETES_CA);
    let kops_controller =
        KopsController::of(&boot, authorities, &facts, store.retries().deadline).for_node_at(&args.node_root);
    let decision = Decision {
        desired: applied.desired(),
        materials,
        kops_controller,
        config_hash: applied.config_hash.clone(),
        known_hashes: record.known_hashes,
        remembered: None,
        // It was given when this was applied, and a cloud takes none back.
        ipv6_prefix: "as last applied".to_owned(),
        store,
        is_last_applied: !is_begun,
        sources: applied.sources.clone(),
        names: [applied.cluster.clone(), applied.instance_group.clone()],
        machine: applied.machine.clone(),
        is_proven: applied.is_proven,
    };
    if is_begun && !is_carried_on(host, &decision)? {
        return Ok(None);
    }
    Ok(Some((instead, decision)))
}

/// The keys and secrets of what was applied: those that the store gives, and keys that are on this machine.
async fn read(
    args: &SpecArgs,
    host: &Host,
    boot: &BootConfig,
    applied: &Applied,
    why: &anyhow::Error,
) -> Result<Read> {
    let mut read = Read::default();
    let is_unreachable =
        why.chain().any(|cause| matches!(cause.downcast_ref(), Some(StoreError::Unreachable { .. })));
    let reads_store = !applied.sources.keysets.is_empty() && config_base(args, boot).is_ok();
    let mut silent = match reads_store {
        true => is_unreachable.then(|| error_text(why)),
        false => Some("this machine does not read the state store".to_owned()),
    };
    let store = Store::new(&args.store.store_mirror)?.with_retries(ONCE);
    let files = StoreFiles::of(&store, &applied.sources);
    for name in applied.items().into_iter().map(|(keyset, _)| keyset).collect::<BTreeSet<_>>() {
        match ask(&mut silent, files.keyset(name)).await {
            Found::There(keyset) => drop(read.keysets.insert(name.to_owned(), keyset)),
            Found::Absent => drop(read.unknown.keysets.insert(name.to_owned(), GONE.to_owned())),
            Found::Denied(why) => drop(read.unknown.keysets.insert(name.to_owned(), why)),
        }
    }
    for name in applied.secrets() {
        match ask(&mut silent, files.secret(name)).await {
            Found::There(secret) => drop(read.secrets.insert(name.to_owned(), secret)),
            Found::Absent => drop(read.unknown.secrets.insert(name.to_owned(), GONE.to_owned())),
            Found::Denied(why) => drop(read.unknown.secrets.insert(name.to_owned(), why)),
        }
    }
    for (keyset, id) in applied.items() {
        let Some(stored) = read.keysets.get(keyset) else {
            take_from_machine(host, applied, &mut read, keyset, id)?;
            continue;
        };
        if let Some(why) = why_unusable(host, applied, stored, keyset, id)
            && !take_from_machine(host, applied, &mut read, keyset, id)?
        {
            read.unusable.insert((keyset.to_owned(), id.to_owned()));
            // Nothing else of a keyset asks for this reason: its other items are at hand.
            read.unknown.keysets.insert(keyset.to_owned(), why);
        }
    }
    Ok(read)
}

/// Why an item that the store has cannot be used in the place of the one that was applied, if it cannot.
fn why_unusable(host: &Host, applied: &Applied, stored: &Keyset, keyset: &str, id: &str) -> Option<String> {
    let item = if id.is_empty() { stored.primary() } else { stored.item(id) };
    let Some(item) = item else {
        return Some(format!("its item {id} is no longer in the state store"));
    };
    let Some(pair) = materials::pair_of(item) else {
        return Some(format!("its item {id} has no private key in the state store, or no certificate"));
    };
    // Keys that sign no certificate are written as they are.
    let signs = |(of, its): (&str, &str)| (of, its) == (keyset, id);
    match applied.signers().into_iter().any(signs) {
        true => host.why_cannot_sign(keyset, id, pair),
        false => None,
    }
}

/// Takes an item from this machine, if its key is there.
fn take_from_machine(
    host: &Host,
    applied: &Applied,
    read: &mut Read,
    keyset: &str,
    id: &str,
) -> Result<bool> {
    let Some(item) = of_machine(host, applied, keyset, id)? else { return Ok(false) };
    read.at_hand.insert((keyset.to_owned(), id.to_owned()), item);
    Ok(true)
}

/// The store has just been asked for long enough.
const ONCE: Retries = Retries {
    deadline: Duration::ZERO,
    attempt: Duration::from_secs(15),
    first_pause: Duration::from_secs(1),
    longest_pause: Duration::from_secs(1),
};

const GONE: &str = "it is no longer in the state store";

/// What the store has, or why that is not known. Once it has not answered it is not asked again.
async fn ask<T>(
    silent: &mut Option<String>,
    asking: impl Future<Output = Result<Found<T>>>,
) -> Found<T, String> {
    if let Some(why) = silent {
        return Found::Denied(why.clone());
    }
    match asking.await {
        Ok(Found::There(found)) => Found::There(found),
        Ok(Found::Absent) => Found::Absent,
        Ok(Found::Denied(why)) => Found::Denied(why.to_string()),
        Err(error) => {
            let why = error_text(&error);
            *silent = Some(why.clone());
            Found::Denied(why)
        }
    }
}

/// An item of a keyset whose private key is in a file of this machine, as it was left there.
fn of_machine(host: &Host, applied: &Applied, keyset: &str, id: &str) -> Result<Option<PemPair>> {
    let (Some(path), Some(certificate)) =
        (applied.file_of_key(keyset, id), applied.item_certificate(keyset, id))
    else {
        return Ok(None);
    };
    let key = host.read_unchanged(path)?.and_then(|bytes| String::from_utf8(bytes).ok());
    Ok(key.map(|private_key| PemPair { certificate: certificate.to_owned(), private_key }))
}

/// What being superseded means to people. `by` is the hash of the other configuration.
pub fn superseded(by: &str) -> String {
    format!(
        "the cluster has another configuration by now ({by}), for the machines that take the place of this one; this one \
         stays as it was last applied until `kops rolling-update cluster` replaces it"
    )
}

/// Puts a machine right by what was last applied to it.
///
/// # Errors
/// What cannot be put right.
pub async fn converge(args: &RootArgs, host: &Host, decision: &Decision) -> Result<Report> {
    let report = Box::pin(node::converge(args, host, decision)).await;
    report.with_context(|| match decision.is_last_applied {
        true => "putting this machine right by what was last applied to it",
        false => "going on with the change that an earlier run has begun",
    })
}

/// What a run has left as it is, although it is not as it should be; `None` where there is none of it.
pub fn unmended(report: &Report) -> Option<anyhow::Error> {
    let lines: Vec<String> =
        report.kept.iter().filter(|kept| kept.keeping == Keeping::Unmended).map(line).collect();
    (!lines.is_empty())
        .then(|| anyhow::anyhow!("some of this node could not be put right:\n{}", lines.join("\n")))
}
