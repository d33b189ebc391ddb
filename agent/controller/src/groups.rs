//! The instance groups of the cluster, and the labels of their nodes. The source is each group's
//! `igconfig/<role>/<group>/nodeupconfig.yaml` in the state store, which `kops update cluster --yes` writes. A change that
//! `kops edit ig` has saved counts only after the next `kops update`. If kOps writes no configurations, the saved groups are
//! the source.
//!
//! Once per interval, one request finds the files that have changed. If the store or a group cannot be read, its last known
//! state stays valid.

pub(crate) mod files;
mod saved;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kops_agent_cluster::labels;
use parking_lot::Mutex;

use files::{
    BEHIND_GROUPS, BEHIND_INSTANCE_GROUPS, CONFIGURATION, GROUPS, INSTANCE_GROUPS, group_of, is_of_file,
};
use kops_agent_spec::failure::{Failing as _, Failure, Kind};
use kops_agent_store::{Store, StoreError};

pub use files::Labels;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// The labels of the group's nodes.
    Known(Arc<Labels>),
    /// The cluster has no such group.
    Unknown,
    /// The group's labels are unknown now: the store or the group could not be read, or the group's role is ambiguous.
    Unreadable,
}

pub struct Groups {
    store: Arc<Store>,
    base: String,
    interval: Duration,
    /// Whether to use groups that `kops edit ig` has saved, but for which kOps has written no configuration.
    saved_count: bool,
    known: Mutex<CachedGroups>,
}

/// The labels of groups, by name. A group that was recreated with another role has several entries, because kOps does not delete the files
/// of the first role.
type ByName = BTreeMap<String, Vec<Arc<Labels>>>;

#[derive(Default)]
struct CachedGroups {
    /// The labels by group name; `None` until the store has been read.
    groups: Option<ByName>,
    read: Read,
    /// Whether the store cannot be read. This is logged once.
    failing: bool,
}

#[derive(Clone, Default)]
struct Read {
    /// The version of each file.
    versions: BTreeMap<String, String>,
    /// The labels of each file, from the last successful read.
    groups: BTreeMap<String, Arc<Labels>>,
    /// Why files cannot be read, by file name.
    problems: BTreeMap<String, Failure>,
}

/// The names of groups that changed since the last refresh.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changed(pub BTreeSet<String>);

impl Groups {
    pub fn new(store: Arc<Store>, base: &str, interval: Duration) -> Groups {
        let base = base.trim_end_matches('/').to_owned();
        Groups { store, base, interval, saved_count: false, known: Mutex::default() }
    }

    /// With `kops_writes_none`, also uses groups that `kops edit ig` has saved, but for which kOps has written no configuration.
    pub fn saved_too(self, kops_writes_none: bool) -> Groups {
        Groups { saved_count: kops_writes_none, ..self }
    }

    /// Returns the state of a group. `noted` contains the node's labels in the cloud. A group that was recreated with another
    /// role has an entry for each role. For such a group, `noted` selects the entry with the node's role.
    pub fn get(&self, name: &str, noted: &Labels) -> Group {
        let known = self.known.lock();
        let Some(groups) = &known.groups else { return Group::Unreadable };
        match groups.get(name).map_or(&[][..], Vec::as_slice) {
            [labels] => Group::Known(labels.clone()),
            [] if known.is_current() => Group::Unknown,
            several => several
                .iter()
                .find(|labels| labels::have_same_roles(labels, noted))
                .map_or(Group::Unreadable, |labels| Group::Known(labels.clone())),
        }
    }

    /// Whether the last refresh could read all files.
    pub fn is_current(&self) -> bool {
        self.known.lock().is_current()
    }

    /// Reads the store. Returns the groups that appeared, disappeared, or got other labels.
    pub async fn refresh(&self) -> Changed {
        let before = self.known.lock().read.clone();
        match self.read(before).await {
            Ok(None) => {
                self.recovered();
                Changed::default()
            }
            Ok(Some((read, labels))) => {
                self.recovered();
                self.replace(read, labels)
            }
            Err(error) => {
                self.failed(&error);
                Changed::default()
            }
        }
    }

    /// Waits until the next refresh is due.
    pub fn pause(&self) -> impl Future<Output = ()> + use<> {
        // The process id makes the pause up to a tenth longer, so different processes read at different times.
        let jitter = self.interval.mul_f64(f64::from(std::process::id() % 100) / 1000.0);
        tokio::time::sleep(self.interval + jitter)
    }

    /// Reads the store; `None` if nothing has changed since `before`.
    async fn read(&self, before: Read) -> Result<Option<(Read, ByName)>> {
        let mut versions = self.store.versions(&self.base, GROUPS, BEHIND_GROUPS).await?;
        versions.retain(|file, _| group_of(file).is_some());
        if self.saved_count {
            versions.extend(saved::versions(&self.store, &self.base, &versions).await?);
        }
        // Every cluster has groups. If a folder has no groups, the path is wrong or kOps is still writing.
        if versions.is_empty() {
            let problem = format!(
                "{}/{GROUPS} has no {CONFIGURATION} of any group; check configBase, or run `kops update cluster --yes`",
                self.base
            );
            return Err(Failure::new(Kind::NoGroups, problem).into());
        }
        if versions == before.versions {
            return Ok(None);
        }
        let mut read = self.read_listed(versions.clone(), before).await?;
        if !read.problems.is_empty() {
            self.forget_deleted(&mut read, &versions).await;
        }
        let mut by_name = ByName::new();
        for (file, labels) in &read.groups {
            let name = group_of(file).unwrap_or_default();
            by_name.entry(name.to_owned()).or_default().push(labels.clone());
        }
        Ok(Some((read, by_name)))
    }

    /// Reads the files. `versions` has the current version of each file. An unchanged or unreadable file keeps its last labels. The result
    /// does not contain the version of an unreadable file, so the next refresh reads the file again.
    async fn read_listed(&self, versions: BTreeMap<String, String>, before: Read) -> Result<Read> {
        let mut read = Read::default();
        for (file, version) in versions {
            let last = before.groups.get(&file).cloned();
            let is_unchanged = before.versions.get(&file) == Some(&version);
            let labels = match last {
                Some(last) if is_unchanged => last,
                last => match self.read_group(&file).await? {
                    Ok(Some(labels)) => Arc::new(labels),
                    // The file was deleted after the listing. If the file is created again, it may have the same version. So note no
                    // version.
                    Ok(None) => continue,
                    Err(failure) => {
                        read.groups.extend(last.map(|labels| (file.clone(), labels)));
                        read.problems.insert(file, failure);
                        continue;
                    }
                },
            };
            read.groups.insert(file.clone(), labels);
            read.versions.insert(file, version);
        }
        Ok(read)
    }

    /// Ignores unreadable files of deleted groups, because `kops delete ig` does not delete all files. The last labels of such a group stay
    /// valid for nodes that still exist. If groups cannot be listed, no group counts as deleted.
    async fn forget_deleted(&self, read: &mut Read, versions: &BTreeMap<String, String>) {
        let listed = self.store.versions(&self.base, INSTANCE_GROUPS, BEHIND_INSTANCE_GROUPS).await;
        let groups = match listed {
            Ok(groups) if !groups.is_empty() => groups,
            Ok(_) => return,
            Err(error) => {
                return log::debug!("cannot check whether the unreadable groups were deleted: {error}");
            }
        };
        let is_there = |file: &str| {
            group_of(file).is_none_or(|name| groups.contains_key(&format!("{INSTANCE_GROUPS}{name}")))
        };
        let (problems, of_deleted): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut read.problems).into_iter().partition(|(file, _)| is_there(file));
        read.problems = problems;
        for (file, problem) in of_deleted {
            log::debug!("{file} is ignored, because its group was deleted: {problem}");
            read.versions
                .extend(versions.get_key_value(&file).map(|(file, version)| (file.clone(), version.clone())));
        }
    }

    /// Reads the labels of a file; `None` if it was deleted after the listing. The inner error concerns only this file; other files can
    /// still be read.
    async fn read_group(&self, file: &str) -> Result<Result<Option<Labels>, Failure>> {
        if let Some(name) = file.strip_prefix(INSTANCE_GROUPS) {
            return Ok(saved::labels(&self.store, &self.base, name).await?.map(Some));
        }
        let url = format!("{}/{file}", self.base);
        match self.store.read(&url).await {
            Ok(text) => Ok(labels::applied(&text, &url)
                .map(Some)
                .map_err(|error| Failure::new(error.kind(), error.to_string()))),
            Err(StoreError::NotFound { .. }) => Ok(Ok(None)),
            Err(error) if is_of_file(error.kind()) => Ok(Err(Failure::new(error.kind(), error.to_string()))),
            Err(error) => Err(error).context("reading the configuration of an instance group"),
        }
    }

    fn replace(&self, read: Read, labels: ByName) -> Changed {
        let mut known = self.known.lock();
        for (file, problem) in &read.problems {
            if known.read.problems.get(file) != Some(problem) {
                log::warn!(
                    "an instance group cannot be read; the last known labels of this group stay in use: {problem}"
                );
            }
        }
        for file in known.read.problems.keys().filter(|file| !read.problems.contains_key(*file)) {
            log::info!("{}/{file} can be read again, or was deleted", self.base);
        }
        let before = known.groups.take().unwrap_or_default();
        let names: BTreeSet<&String> = before.keys().chain(labels.keys()).collect();
        let changed =
            names.into_iter().filter(|name| before.get(*name) != labels.get(*name)).cloned().collect();
        known.read = read;
        known.groups = Some(labels);
        Changed(changed)
    }

    fn recovered(&self) {
        let mut known = self.known.lock();
        if std::mem::take(&mut known.failing) {
            log::info!("the state store {} can be read again", self.base);
        }
    }

    fn failed(&self, error: &anyhow::Error) {
        let mut known = self.known.lock();
        if std::mem::replace(&mut known.failing, true) {
            return;
        }
        let error = kops_agent_process::output::error_text(error);
        match known.groups {
            Some(_) => {
                log::warn!(
                    "the state store cannot be read; the last known labels of its groups stay in use: {error}"
                )
            }
            None => log::warn!(
                "the state store cannot be read; Nodes get the labels that kOps stored in the cloud: {error}"
            ),
        }
    }
}

impl CachedGroups {
    fn is_current(&self) -> bool {
        self.groups.is_some() && !self.failing && self.read.problems.is_empty()
    }
}

#[cfg(test)]
mod tests;
