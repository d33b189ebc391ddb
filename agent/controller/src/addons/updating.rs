//! Doing what an add-on is due for, in upstream's order: its objects are applied, what its rules name is pruned, nodes are marked,
//! the version is recorded; and its authority is made, whatever came of the rest.
//!
//! Source: `EnsureUpdated` and `updateAddon` of upstream's `channels/pkg/channels/addon.go`.

use kops_agent_plan::addons::{Addon, ChannelVersion, Due};
use kops_agent_process::output::error_text;
use kops_agent_store::Store;
use serde::Serialize;
use time::OffsetDateTime;

use super::objects::Objects;
use super::{applying, authority, installed, marking, pruning, reading};

/// What was done about an add-on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The add-on.
    pub name: String,
    /// The channel that it is of.
    pub channel: String,
    /// Objects that are as its manifest has them.
    pub objects: usize,
    /// Fields that were other managers' and are ours now.
    pub taken_over: Vec<String>,
    /// Objects that were deleted.
    pub pruned: Vec<String>,
    /// Nodes that are marked for replacement.
    pub marked_nodes: usize,
    /// Whether its authority was made.
    pub made_authority: bool,
    /// Whether its version was recorded.
    pub is_recorded: bool,
    /// What failed; empty where all that was due is done.
    pub problems: Vec<String>,
}

/// Does what is due.
pub async fn update(objects: &Objects, store: &Store, addon: &Addon, due: &Due) -> Report {
    let mut report = Report { name: addon.name.clone(), channel: addon.channel.clone(), ..Report::default() };
    if let Some(version) = &due.version {
        match apply(objects, store, addon, due, version, &mut report).await {
            Ok(()) => report.is_recorded = true,
            Err(problems) => report.problems = problems,
        }
    }
    if due.pki {
        match authority::make(objects, &addon.name, OffsetDateTime::now_utc()).await {
            Ok(()) => report.made_authority = true,
            Err(problem) => report.problems.push(problem),
        }
    }
    report
}

async fn apply(
    objects: &Objects,
    store: &Store,
    addon: &Addon,
    due: &Due,
    version: &ChannelVersion,
    report: &mut Report,
) -> Result<(), Vec<String>> {
    let manifest = reading::manifest(store, addon).await.map_err(|error| vec![error_text(&error)])?;
    let misplaced = applying::misplaced(objects, &manifest).await;
    if !misplaced.is_empty() {
        return Err(misplaced);
    }
    let mut applied = applying::apply(objects, &manifest).await;
    let rules = addon.spec.prune.as_ref().map_or(&[][..], |prune| &prune.kinds);
    let (pruned, unpruned) = pruning::prune(objects, rules, &manifest).await;
    report.pruned = pruned;
    report.taken_over.append(&mut applied.taken_over);
    // What was pruned may have stood in the way.
    if !applied.problems.is_empty() && unpruned.is_empty() {
        applied = applying::apply(objects, &manifest).await;
        report.taken_over.append(&mut applied.taken_over);
    }
    report.objects = applied.objects;
    let mut problems = applied.problems;
    problems.extend(unpruned);
    if !problems.is_empty() {
        return Err(problems);
    }
    if let Some(which) = due.marks {
        report.marked_nodes =
            marking::mark(objects.client(), which).await.map_err(|problem| vec![problem])?;
    }
    let recorded = installed::record(objects.client(), addon.namespace(), &addon.name, version).await;
    recorded.map_err(|error| {
        vec![format!("recording its version in the namespace {}: {error}", addon.namespace())]
    })
}
