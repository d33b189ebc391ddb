//! Updates an add-on in upstream's order: applies its objects, prunes, marks Nodes, records the version. It creates the add-on's
//! authority even if an earlier step fails. A slow add-on delays the others only for its head start.
//!
//! Source: `EnsureUpdated` and `updateAddon` of upstream's `channels/pkg/channels/addon.go`.

use std::pin::pin;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use kops_agent_cluster::addons::pause::annotation_of_addon;
use kops_agent_cluster::addons::{Addon, ChannelVersion, Due, Report};
use kops_agent_process::output::error_text;
use kops_agent_store::Store;
use time::OffsetDateTime;
use tokio::time::sleep;

use super::objects::Objects;
use super::{applying, authority, installed, marking, pruning, reading};

/// The maximum time by which a slow add-on delays the next add-on.
const HEAD_START: Duration = Duration::from_secs(2);

/// Says which annotation pauses the add-on.
pub fn pause_of(addon: &Addon) -> String {
    format!("the namespace {} has the annotation {}", addon.namespace(), annotation_of_addon(&addon.name))
}

/// Updates the add-ons in order. An add-on begins if the add-on before it is done, or after `HEAD_START`. So a slow add-on, such as one
/// whose webhook does not answer, delays the next add-on only for `HEAD_START`. The report is `None` for an add-on that did not begin
/// because `may_begin` was false.
pub async fn update_all(
    objects: &Objects,
    store: &Store,
    work: Vec<(&Addon, &Due)>,
    may_begin: impl Fn() -> bool,
) -> Vec<Option<Report>> {
    let mut reports: Vec<Option<Report>> = work.iter().map(|_| None).collect();
    let mut running = FuturesUnordered::new();
    for (index, (addon, due)) in work.into_iter().enumerate() {
        if !may_begin() {
            break;
        }
        running.push(async move { (index, update(objects, store, addon, due).await) });
        let mut head_start = pin!(sleep(HEAD_START));
        while reports[index].is_none() {
            tokio::select! {
                Some((done, report)) = running.next() => reports[done] = Some(report),
                () = &mut head_start => break,
            }
        }
    }
    while let Some((done, report)) = running.next().await {
        reports[done] = Some(report);
    }
    reports
}

async fn update(objects: &Objects, store: &Store, addon: &Addon, due: &Due) -> Report {
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
            Err(failure) => report.problems.push(failure.to_string()),
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
    let mut applied = applying::apply(objects, addon, &manifest).await;
    report.taken_over.append(&mut applied.taken_over);
    let pruned = pruning::prune(objects, addon, &manifest, &applied.tried).await;
    // A pruned object may have blocked the apply, so apply once more.
    if !applied.problems.is_empty() && !pruned.deleted.is_empty() {
        applied = applying::apply(objects, addon, &manifest).await;
        report.taken_over.append(&mut applied.taken_over);
    }
    report.pruned = pruned.deleted;
    report.paused = applied.paused;
    report.objects = applied.tried.iter().filter(|one| one.live.is_ok()).count();
    let mut problems = applied.problems;
    problems.extend(pruned.problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    if let Some(which) = due.marks {
        report.marked_nodes =
            marking::mark(objects.client(), which).await.map_err(|failure| vec![failure.to_string()])?;
    }
    let recorded = installed::record(objects.client(), addon.namespace(), &addon.name, version).await;
    recorded.map_err(|error| {
        vec![format!("recording the add-on's version in the namespace {}: {error}", addon.namespace())]
    })
}
