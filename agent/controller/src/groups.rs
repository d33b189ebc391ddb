//! The instance groups of the cluster, as `kops update cluster --yes` has applied them, and the labels of their nodes: those of
//! each group's `igconfig/<role>/<group>/nodeupconfig.yaml` in the state store. What `kops edit ig` has saved and no
//! `kops update` has applied yet is not there. Where kOps writes none, they are those of the groups as they are saved.
//!
//! The store is looked at every so often, by one request that tells which files are others than before. Where it cannot
//! be read, or one group cannot, what was last known of it holds.

mod files;
mod saved;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kops_agent_plan::labels;
use parking_lot::Mutex;

use files::{
    BEHIND_GROUPS, BEHIND_INSTANCE_GROUPS, CONFIGURATION, GROUPS, INSTANCE_GROUPS, group_of, is_of_file,
};
use kops_agent_store::{Store, StoreError};

pub use files::Labels;

/// What is known of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// Its nodes have these labels.
    Known(Arc<Labels>),
    /// The cluster has no such group.
    Unknown,
    /// It may be a new one: what the store has of it has not been read yet, and cannot be.
    Unreadable,
}

pub struct Groups {
    store: Arc<Store>,
    base: String,
    interval: Duration,
    /// Whether groups count that are saved, and of which no configuration is written.
    saved_count: bool,
    known: Mutex<Known>,
}

/// The labels of the groups of a name: of more than one, where a group was made anew with another role, for kOps leaves what
/// it had written of the first.
type ByName = BTreeMap<String, Vec<Arc<Labels>>>;

#[derive(Default)]
struct Known {
    /// By name; `None` while the store has never been read.
    groups: Option<ByName>,
    read: Read,
    /// Whether the store cannot be read: said once.
    failing: bool,
}

/// What was read of the store.
#[derive(Clone, Default)]
struct Read {
    /// Of which version each file is.
    versions: BTreeMap<String, String>,
    /// The labels as they were when they could last be read, by file.
    groups: BTreeMap<String, Arc<Labels>>,
    /// Why files cannot be read.
    problems: BTreeMap<String, String>,
}

/// What is different since the store was last looked at.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changed(pub BTreeSet<String>);

impl Groups {
    /// The groups of the cluster whose folder in the store is `base`, to be looked at so often.
    pub fn of(store: Arc<Store>, base: &str, interval: Duration) -> Groups {
        let base = base.trim_end_matches('/').to_owned();
        Groups { store, base, interval, saved_count: false, known: Mutex::default() }
    }

    /// The same, of which groups count that are saved and of which no configuration is written: kOps may write none.
    pub fn saved_too(self, kops_writes_none: bool) -> Groups {
        Groups { saved_count: kops_writes_none, ..self }
    }

    /// What is known of the group of this name, for a node of which its cloud has noted these labels.
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

    /// Whether all of the store could be read when it was last looked at.
    pub fn is_current(&self) -> bool {
        self.known.lock().is_current()
    }

    /// Looks at the store, and tells which groups have other labels than before, or came or went.
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

    /// When to look at the store the next time.
    pub fn pause(&self) -> impl Future<Output = ()> + use<> {
        // Up to a tenth more, and for each process another: several do not come at once.
        let jitter = self.interval.mul_f64(f64::from(std::process::id() % 100) / 1000.0);
        tokio::time::sleep(self.interval + jitter)
    }

    /// What the store has, if that is something else than before.
    async fn read(&self, before: Read) -> Result<Option<(Read, ByName)>> {
        let mut versions = self.store.versions(&self.base, GROUPS, BEHIND_GROUPS).await?;
        versions.retain(|file, _| group_of(file).is_some());
        if self.saved_count {
            versions.extend(saved::versions(&self.store, &self.base, &versions).await?);
        }
        // A cluster has groups. Where there are none this is another folder, or one that is still being written.
        ensure!(
            !versions.is_empty(),
            "{}/{GROUPS} has no {CONFIGURATION} of any group; is configBase right, and has `kops update cluster --yes` been run?",
            self.base
        );
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

    /// What is in these files of these versions. What was read of one holds where it is unchanged, or cannot be read; without
    /// its version it is read again the next time.
    async fn read_listed(&self, versions: BTreeMap<String, String>, before: Read) -> Result<Read> {
        let mut read = Read::default();
        for (file, version) in versions {
            let last = before.groups.get(&file).cloned();
            let is_unchanged = before.versions.get(&file) == Some(&version);
            let labels = match last {
                Some(last) if is_unchanged => last,
                last => match self.read_group(&file).await? {
                    Ok(Some(labels)) => Arc::new(labels),
                    // It is deleted; where it comes back it may be of the same version.
                    Ok(None) => continue,
                    Err(problem) => {
                        read.groups.extend(last.map(|labels| (file.clone(), labels)));
                        read.problems.insert(file, problem);
                        continue;
                    }
                },
            };
            read.groups.insert(file.clone(), labels);
            read.versions.insert(file, version);
        }
        Ok(read)
    }

    /// Takes no offence at files of groups that are no longer there: `kops delete ig` leaves them behind. What was last read
    /// of them holds for nodes that are still to go. Where groups cannot be listed, none is taken for deleted.
    async fn forget_deleted(&self, read: &mut Read, versions: &BTreeMap<String, String>) {
        let listed = self.store.versions(&self.base, INSTANCE_GROUPS, BEHIND_INSTANCE_GROUPS).await;
        let groups = match listed {
            Ok(groups) if !groups.is_empty() => groups,
            Ok(_) => return,
            Err(error) => {
                return log::debug!("whether groups that cannot be read were deleted is not known: {error}");
            }
        };
        let is_there = |file: &str| {
            group_of(file).is_none_or(|name| groups.contains_key(&format!("{INSTANCE_GROUPS}{name}")))
        };
        let (problems, of_deleted): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut read.problems).into_iter().partition(|(file, _)| is_there(file));
        read.problems = problems;
        for (file, problem) in of_deleted {
            log::debug!("{file} is of a group that was deleted, and is not missed: {problem}");
            read.versions
                .extend(versions.get_key_value(&file).map(|(file, version)| (file.clone(), version.clone())));
        }
    }

    /// The labels of a file, unless that is gone since it was listed; or what is wrong with this one file.
    async fn read_group(&self, file: &str) -> Result<Result<Option<Labels>, String>> {
        if let Some(name) = file.strip_prefix(INSTANCE_GROUPS) {
            return Ok(saved::labels(&self.store, &self.base, name).await?.map(Some));
        }
        let url = format!("{}/{file}", self.base);
        match self.store.read(&url).await {
            Ok(text) => Ok(labels::applied(&text, &url).map(Some).map_err(|error| error.to_string())),
            Err(StoreError::NotFound { .. }) => Ok(Ok(None)),
            Err(error) if is_of_file(&error) => Ok(Err(error.to_string())),
            Err(error) => Err(error).context("reading what kOps has applied of an instance group"),
        }
    }

    fn replace(&self, read: Read, labels: ByName) -> Changed {
        let mut known = self.known.lock();
        for (file, problem) in &read.problems {
            if known.read.problems.get(file) != Some(problem) {
                log::warn!("an instance group cannot be read; what was last read of it holds: {problem}");
            }
        }
        for file in known.read.problems.keys().filter(|file| !read.problems.contains_key(*file)) {
            log::info!("{}/{file} can be read again, or is gone", self.base);
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
            Some(_) => log::warn!("the state store cannot be read; what was last read of it holds: {error}"),
            None => log::warn!(
                "the state store cannot be read; nodes get the labels that kOps noted in the cloud: {error}"
            ),
        }
    }
}

impl Known {
    fn is_current(&self) -> bool {
        self.groups.is_some() && !self.failing && self.read.problems.is_empty()
    }
}

#[cfg(test)]
mod tests;
