//! What a machine is put right by while what is wanted of it now is not known, or may not be applied to it: the state
//! that was last applied.
//!
//! Between `kops update cluster` and the rolling update every machine that is pinned to a configuration is superseded:
//! the store has the next one, which is for the machines that take its place. A store may be out of reach, deny what it
//! gave before, or hold a mistake; kops-controller gives a Node that is ready nothing. None of that is a reason to leave
//! drift, volumes and certificates as they are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kops_agent_host::{Applied, Host, PemPair, Report};
use kops_agent_plan::diff::Keeping;
use kops_agent_plan::spec::{BootConfig, HashMismatch};

use crate::bootstrap_client::{self, KopsController};
use crate::cli::{RootArgs, SpecArgs};
use crate::environment::Environment;
use crate::materials::{Materials, Read};
use crate::node::{self, Decision};
use crate::output::error_text;
use crate::retry::Retries;
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
    /// What is wanted is not known, or cannot be applied, which is a failure.
    Failed,
}

impl Instead {
    /// What an error means to a machine that has converged to the configuration of this hash.
    fn of(error: &anyhow::Error, config_hash: &str) -> Instead {
        let mismatch = error.chain().find_map(|cause| cause.downcast_ref::<HashMismatch>());
        match mismatch {
            Some(mismatch) if mismatch.expected == config_hash => {
                Instead::Superseded(mismatch.actual.clone())
            }
            _ if bootstrap_client::is_already_registered(error) => Instead::Registered,
            _ => Instead::Failed,
        }
    }
}

/// Whether what was last applied is applied in the place of what an error keeps from being known or applied. A change that
/// has begun and failed is none of that: the next run goes on with it.
pub fn stands_in_for(error: &anyhow::Error) -> bool {
    !error.chain().any(|cause| match cause.downcast_ref() {
        Some(kops_agent_host::Error::FailedBefore(_)) | None => false,
        Some(_) => true,
    })
}

/// What was last applied, decided again, where a machine has converged and its user-data is still for the same
/// instance group; `None` where it is not.
///
/// # Errors
/// What was applied cannot be read.
pub async fn decide(
    args: &SpecArgs,
    host: &Host,
    why: &anyhow::Error,
) -> Result<Option<(Instead, Decision)>> {
    // Without it there is no telling that this is the same machine still.
    let Ok(boot) = node::boot_config(&args.conf) else { return Ok(None) };
    let Some(applied) = host.applied().context("reading what was last applied")? else { return Ok(None) };
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
    let instead = Instead::of(why, &applied.config_hash);
    let store = Arc::new(node::store(&args.store)?);
    let materials =
        Materials::of_applied(Arc::clone(&applied), read(args, host, &boot, &applied, why).await?)
            .with_environment(Environment::of_machine(&args.node_root).of_role(boot.instance_group_role));
    let record = host.record()?;
    let authorities = applied.trusted_certificates(kops_agent_plan::resolve::KUBERNETES_CA);
    let kops_controller =
        KopsController::of(&boot, authorities, &facts, store.retries().deadline).for_node_at(&args.node_root);
    Ok(Some((
        instead,
        Decision {
            desired: applied.desired(),
            materials,
            kops_controller,
            config_hash: applied.config_hash.clone(),
            known_hashes: record.known_hashes,
            remembered: None,
            // It was given when this was applied, and a cloud takes none back.
            ipv6_prefix: "as last applied".to_owned(),
            store,
            is_last_applied: true,
            sources: applied.sources.clone(),
            names: [applied.cluster.clone(), applied.instance_group.clone()],
            machine: applied.machine.clone(),
        },
    )))
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
        let stored = read.keysets.get(keyset).and_then(|stored| stored.item(id));
        let on_machine = match stored {
            Some(item) if item.private_material.is_some() => None,
            _ => of_machine(host, applied, keyset, id)?,
        };
        if let Some(item) = on_machine {
            read.keysets.remove(keyset);
            read.at_hand.insert((keyset.to_owned(), id.to_owned()), item);
        }
    }
    Ok(read)
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
    report.context("putting this machine right by what was last applied to it")
}

/// What a run has left as it is, although it is not as it should be; `None` where there is none of it.
pub fn unmended(report: &Report) -> Option<anyhow::Error> {
    let lines: Vec<String> = report
        .kept
        .iter()
        .filter(|kept| kept.keeping == Keeping::Unmended)
        .map(|kept| format!("  {}: {}", kept.resource, kept.why))
        .collect();
    (!lines.is_empty())
        .then(|| anyhow::anyhow!("some of this node could not be put right:\n{}", lines.join("\n")))
}
