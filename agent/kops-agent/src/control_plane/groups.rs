//! The instance groups of the cluster, as the state store has them, and the labels of their nodes.
//!
//! The store is looked at every so often, by one request that tells which files are others than before. Where it cannot
//! be read, or one group cannot, what was last known of it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use kops_agent_plan::derive;
use kops_agent_plan::spec::{Cluster, InstanceGroup, InstanceGroupRole};

use crate::store::{Store, StoreError};

/// The labels of a group's nodes.
pub type Labels = BTreeMap<String, String>;

const COMPLETED_SPEC: &str = "cluster-completed.spec";
const GROUPS: &str = "instancegroup/";
/// What comes after every file of [`GROUPS`].
const BEHIND_GROUPS: &str = "instancegroup/\u{7f}";

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

/// The groups, watched.
pub struct Groups {
    store: Arc<Store>,
    base: String,
    interval: Duration,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By name; `None` while the store has never been read.
    groups: Option<BTreeMap<String, Arc<Labels>>>,
    read: Read,
    /// Whether the store cannot be read: said once.
    failing: bool,
}

/// What was read of the store.
#[derive(Clone, Default)]
struct Read {
    /// Of which version each file is.
    versions: BTreeMap<String, String>,
    /// The groups as they were when they could last be read, by file.
    groups: BTreeMap<String, Arc<InstanceGroup>>,
    /// Why files cannot be read.
    problems: BTreeMap<String, String>,
}

/// What is different since the store was last looked at.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changed(pub BTreeSet<String>);

impl Groups {
    /// The groups of the cluster whose folder in the store is `base`, to be looked at so often.
    pub fn of(store: Arc<Store>, base: &str, interval: Duration) -> Groups {
        Groups { store, base: base.trim_end_matches('/').to_owned(), interval, known: Mutex::default() }
    }

    /// What is known of the group of this name.
    pub fn get(&self, name: &str) -> Group {
        let known = self.known();
        match &known.groups {
            None => Group::Unreadable,
            Some(groups) => match groups.get(name) {
                Some(labels) => Group::Known(labels.clone()),
                None if known.is_current() => Group::Unknown,
                None => Group::Unreadable,
            },
        }
    }

    /// Whether all of the store could be read when it was last looked at.
    pub fn is_current(&self) -> bool {
        self.known().is_current()
    }

    /// Looks at the store, and tells which groups have other labels than before, or came or went.
    pub async fn refresh(&self) -> Changed {
        let before = self.known().read.clone();
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
    async fn read(&self, before: Read) -> Result<Option<(Read, BTreeMap<String, Arc<Labels>>)>> {
        let mut versions = self.store.versions(&self.base, COMPLETED_SPEC, BEHIND_GROUPS).await?;
        versions.retain(|name, _| name == COMPLETED_SPEC || is_group(name));
        if versions == before.versions {
            return Ok(None);
        }
        let url = format!("{}/{COMPLETED_SPEC}", self.base);
        let cluster = Cluster::parse(&self.store.read(&url).await?, &url)?;
        let mut read = Read::default();
        for (file, version) in versions {
            if file != COMPLETED_SPEC {
                match self.read_group(&file).await? {
                    Ok(group) => {
                        read.groups.extend(group.map(|group| (file.clone(), Arc::new(group))));
                    }
                    Err(problem) => {
                        let last = before.groups.get(&file).cloned();
                        read.groups.extend(last.map(|group| (file.clone(), group)));
                        read.problems.insert(file, problem);
                        // Without its version, it is read again the next time.
                        continue;
                    }
                }
            }
            read.versions.insert(file, version);
        }
        let roles: BTreeSet<InstanceGroupRole> = read.groups.values().map(|group| group.spec.role).collect();
        let labels = |group: &InstanceGroup| Arc::new(derive::node_labels(&cluster, group, &roles));
        let labels = read.groups.values().map(|group| (group.metadata.name.clone(), labels(group))).collect();
        Ok(Some((read, labels)))
    }

    /// The group of a file, unless that is gone since it was listed; or what is wrong with this one file.
    async fn read_group(&self, file: &str) -> Result<Result<Option<InstanceGroup>, String>> {
        let url = format!("{}/{file}", self.base);
        match self.store.read(&url).await {
            Ok(text) => Ok(InstanceGroup::parse(&text, &url).map(Some).map_err(|error| error.to_string())),
            Err(StoreError::NotFound { .. }) => Ok(Ok(None)),
            Err(error) if is_of_file(&error) => Ok(Err(error.to_string())),
            Err(error) => Err(error).context("reading an instance group"),
        }
    }

    fn replace(&self, read: Read, labels: BTreeMap<String, Arc<Labels>>) -> Changed {
        let mut known = self.known();
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
        let mut known = self.known();
        if std::mem::take(&mut known.failing) {
            log::info!("the state store {} can be read again", self.base);
        }
    }

    fn failed(&self, error: &anyhow::Error) {
        let mut known = self.known();
        if std::mem::replace(&mut known.failing, true) {
            return;
        }
        let error = crate::output::error_text(error);
        match known.groups {
            Some(_) => log::warn!("the state store cannot be read; what was last read of it holds: {error}"),
            None => log::warn!(
                "the state store cannot be read; nodes get the labels that kOps noted in the cloud: {error}"
            ),
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn is_current(&self) -> bool {
        self.groups.is_some() && !self.failing && self.read.problems.is_empty()
    }
}

/// Whether a file of the store is one of a group. What people make a folder with in a bucket has the folder's own name.
fn is_group(file: &str) -> bool {
    file.strip_prefix(GROUPS).is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

/// Whether a file alone is the trouble, as where its key may not be used, and others can be read.
fn is_of_file(error: &StoreError) -> bool {
    match error {
        StoreError::Forbidden { .. } | StoreError::TooLarge { .. } | StoreError::Io { .. } => true,
        StoreError::Refused { status, .. } => *status < 500,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::path::Path;

    use super::*;

    const CLUSTER: &str = "{apiVersion: kops.k8s.io/v1alpha2, kind: Cluster, metadata: {name: c.example.com}, spec: \
                           {cloudProvider: aws, kubernetesVersion: 1.34.1, networking: {cni: {}}}}";

    fn write_group(folder: &Path, name: &str, spec: &str) {
        let text = format!(
            "{{apiVersion: kops.k8s.io/v1alpha2, kind: InstanceGroup, metadata: {{name: {name}}}, spec: {{{spec}}}}}"
        );
        fs::write(folder.join("instancegroup").join(name), text).unwrap();
    }

    fn store() -> (tempfile::TempDir, Groups) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["instancegroup/old", "backups/etcd", "igconfig/node/nodes"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join(COMPLETED_SPEC), CLUSTER).unwrap();
        for name in ["igconfig/node/nodes/nodeupconfig.yaml", "instancegroup/old/nodes"] {
            fs::write(folder.path().join(name), "no group").unwrap();
        }
        write_group(folder.path(), "nodes", "role: Node, nodeLabels: {a: '1'}");
        write_group(folder.path(), "control-plane", "role: Master");
        let groups =
            Groups::of(Arc::new(Store::new(&[]).unwrap()), folder.path().to_str().unwrap(), Duration::MAX);
        (folder, groups)
    }

    fn changed(names: &[&str]) -> Changed {
        Changed(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn labels(groups: &Groups, name: &str) -> Vec<String> {
        match groups.get(name) {
            Group::Known(labels) => labels.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            other => vec![format!("{other:?}")],
        }
    }

    #[tokio::test]
    async fn labels_follow_the_store() {
        let (folder, groups) = store();
        assert_eq!(groups.get("nodes"), Group::Unreadable);
        assert_eq!(groups.refresh().await, changed(&["control-plane", "nodes"]));
        assert_eq!(labels(&groups, "nodes"), ["a=1", "node-role.kubernetes.io/node="]);
        assert_eq!(groups.refresh().await, changed(&[]));

        write_group(folder.path(), "nodes", "role: Node, nodeLabels: {a: '2', b: x}");
        write_group(folder.path(), "more", "role: Node");
        assert_eq!(groups.refresh().await, changed(&["more", "nodes"]));
        assert_eq!(labels(&groups, "nodes"), ["a=2", "b=x", "node-role.kubernetes.io/node="]);

        fs::remove_file(folder.path().join("instancegroup/more")).unwrap();
        assert_eq!(groups.refresh().await, changed(&["more"]));
        assert_eq!(groups.get("more"), Group::Unknown);
    }

    #[tokio::test]
    async fn a_group_of_api_servers_changes_the_control_planes_labels() {
        let (folder, groups) = store();
        groups.refresh().await;
        assert!(
            !labels(&groups, "control-plane").contains(&"node-role.kubernetes.io/api-server=".to_owned())
        );
        write_group(folder.path(), "api", "role: APIServer");
        assert_eq!(groups.refresh().await, changed(&["api", "control-plane"]));
    }

    #[tokio::test]
    async fn a_group_that_cannot_be_read_is_as_it_was_and_the_others_go_on() {
        let (folder, groups) = store();
        groups.refresh().await;
        assert!(groups.is_current());
        for name in ["nodes", "new"] {
            fs::write(folder.path().join("instancegroup").join(name), "{spec: [").unwrap();
        }
        write_group(folder.path(), "control-plane", "role: Master, nodeLabels: {b: '1'}");
        assert_eq!(groups.refresh().await, changed(&["control-plane"]));
        assert!(!groups.is_current());
        assert_eq!(labels(&groups, "nodes"), ["a=1", "node-role.kubernetes.io/node="]);
        assert_eq!(groups.get("new"), Group::Unreadable, "it may be the one that cannot be read");
        assert_eq!(groups.refresh().await, changed(&[]));
        assert!(!groups.is_current());
        write_group(folder.path(), "nodes", "role: Node");
        fs::remove_file(folder.path().join("instancegroup/new")).unwrap();
        assert_eq!(groups.refresh().await, changed(&["nodes"]));
        assert!(groups.is_current());
        assert_eq!(groups.get("new"), Group::Unknown);
    }

    #[tokio::test]
    async fn what_was_last_known_holds_while_the_store_cannot_be_read() {
        let (folder, groups) = store();
        groups.refresh().await;
        fs::write(folder.path().join(COMPLETED_SPEC), "{spec: [").unwrap();
        write_group(folder.path(), "new", "role: Node");
        assert_eq!(groups.refresh().await, changed(&[]));
        assert!(!groups.is_current());
        assert_eq!(labels(&groups, "nodes"), ["a=1", "node-role.kubernetes.io/node="]);
        assert_eq!(groups.get("new"), Group::Unreadable, "it may be a new one");
        fs::write(folder.path().join(COMPLETED_SPEC), CLUSTER).unwrap();
        assert_eq!(groups.refresh().await, changed(&["new"]));
        assert!(groups.is_current());
    }

    #[test]
    fn what_makes_a_folder_is_no_group() {
        assert!(is_group("instancegroup/nodes"));
        for file in ["instancegroup/", "instancegroup/old/nodes", "igconfig/node/nodes"] {
            assert!(!is_group(file), "{file}");
        }
    }
}
