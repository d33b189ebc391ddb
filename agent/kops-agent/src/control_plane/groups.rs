//! The instance groups of the cluster, as `kops update cluster --yes` has applied them, and the labels of their nodes: those of
//! each group's `igconfig/<role>/<group>/nodeupconfig.yaml` in the state store. What `kops edit ig` has saved and no
//! `kops update` has applied yet is not there.
//!
//! The store is looked at every so often, by one request that tells which files are others than before. Where it cannot
//! be read, or one group cannot, what was last known of it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kops_agent_plan::labels;

use crate::store::{Store, StoreError};

/// The labels of a group's nodes.
pub type Labels = BTreeMap<String, String>;

const GROUPS: &str = "igconfig/";
/// What comes after every file of [`GROUPS`].
const BEHIND_GROUPS: &str = "igconfig/\u{7f}";
const CONFIGURATION: &str = "nodeupconfig.yaml";
/// The folders of the roles whose machines are Nodes (upstream: `pkg/nodelabels/builder.go`).
const ROLES: [&str; 3] = ["control-plane", "apiserver", "node"];

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
        Groups { store, base: base.trim_end_matches('/').to_owned(), interval, known: Mutex::default() }
    }

    /// What is known of the group of this name, for a node of which its cloud has noted these labels.
    pub fn get(&self, name: &str, noted: &Labels) -> Group {
        let known = self.known();
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
    async fn read(&self, before: Read) -> Result<Option<(Read, ByName)>> {
        let mut versions = self.store.versions(&self.base, GROUPS, BEHIND_GROUPS).await?;
        versions.retain(|file, _| group_of(file).is_some());
        // A cluster has groups. Where there are none this is another folder, or one that is still being written.
        ensure!(
            !versions.is_empty(),
            "{}/{GROUPS} has no {CONFIGURATION} of any group; is configBase right, and has `kops update cluster --yes` been run?",
            self.base
        );
        if versions == before.versions {
            return Ok(None);
        }
        let mut read = Read::default();
        for (file, version) in versions {
            match self.read_group(&file).await? {
                Ok(labels) => {
                    read.groups.extend(labels.map(|labels| (file.clone(), Arc::new(labels))));
                }
                Err(problem) => {
                    let last = before.groups.get(&file).cloned();
                    read.groups.extend(last.map(|labels| (file.clone(), labels)));
                    read.problems.insert(file, problem);
                    // Without its version, it is read again the next time.
                    continue;
                }
            }
            read.versions.insert(file, version);
        }
        let mut by_name = ByName::new();
        for (file, labels) in &read.groups {
            let name = group_of(file).unwrap_or_default();
            by_name.entry(name.to_owned()).or_default().push(labels.clone());
        }
        Ok(Some((read, by_name)))
    }

    /// The labels of a file, unless that is gone since it was listed; or what is wrong with this one file.
    async fn read_group(&self, file: &str) -> Result<Result<Option<Labels>, String>> {
        let url = format!("{}/{file}", self.base);
        match self.store.read(&url).await {
            Ok(text) => Ok(labels::applied(&text, &url).map(Some).map_err(|error| error.to_string())),
            Err(StoreError::NotFound { .. }) => Ok(Ok(None)),
            Err(error) if is_of_file(&error) => Ok(Err(error.to_string())),
            Err(error) => Err(error).context("reading what kOps has applied of an instance group"),
        }
    }

    fn replace(&self, read: Read, labels: ByName) -> Changed {
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

/// The group whose nodes a file of the store is for, if it is one of kOps' configurations of nodes.
fn group_of(file: &str) -> Option<&str> {
    let mut parts = file.strip_prefix(GROUPS)?.split('/');
    let (role, name, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let is_one = ROLES.contains(&role) && !name.is_empty() && rest == CONFIGURATION && parts.next().is_none();
    is_one.then_some(name)
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

    fn write_group(folder: &Path, name: &str, labels: &str) {
        write(
            folder,
            &format!("igconfig/node/{name}"),
            &format!("node-role.kubernetes.io/node: '', {labels}"),
        );
    }

    fn write(folder: &Path, group: &str, labels: &str) {
        let folder = folder.join(group);
        fs::create_dir_all(&folder).unwrap();
        let text = format!("{{ClusterName: c.example.com, KubeletConfig: {{nodeLabels: {{{labels}}}}}}}");
        fs::write(folder.join(CONFIGURATION), text).unwrap();
    }

    fn break_group(folder: &Path, name: &str) {
        fs::create_dir_all(folder.join("igconfig/node").join(name)).unwrap();
        fs::write(folder.join("igconfig/node").join(name).join(CONFIGURATION), "{spec: [").unwrap();
    }

    fn store() -> (tempfile::TempDir, Groups) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["instancegroup", "igconfig/node/old/nodes", "igconfig/bastion/b"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        for name in ["igconfig/node/old/nodes/nodeupconfig.yaml", "igconfig/bastion/b/nodeupconfig.yaml"] {
            fs::write(folder.path().join(name), "no group").unwrap();
        }
        write_group(folder.path(), "nodes", "a: '1'");
        write(
            folder.path(),
            "igconfig/control-plane/control-plane",
            "node-role.kubernetes.io/control-plane: ''",
        );
        let groups =
            Groups::of(Arc::new(Store::new(&[]).unwrap()), folder.path().to_str().unwrap(), Duration::MAX);
        (folder, groups)
    }

    fn changed(names: &[&str]) -> Changed {
        Changed(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn get(groups: &Groups, name: &str) -> Group {
        groups.get(name, &Labels::new())
    }

    fn labels(groups: &Groups, name: &str) -> Vec<String> {
        shown(get(groups, name))
    }

    fn shown(group: Group) -> Vec<String> {
        match group {
            Group::Known(labels) => labels.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            other => vec![format!("{other:?}")],
        }
    }

    #[tokio::test]
    async fn labels_follow_what_kops_has_applied_and_not_what_was_only_saved() {
        let (folder, groups) = store();
        assert_eq!(get(&groups, "nodes"), Group::Unreadable);
        assert_eq!(groups.refresh().await, changed(&["control-plane", "nodes"]));
        assert_eq!(labels(&groups, "nodes"), ["a=1", "node-role.kubernetes.io/node="]);
        assert_eq!(groups.refresh().await, changed(&[]));

        // `kops edit ig`.
        let edited = "{apiVersion: kops.k8s.io/v1alpha2, kind: InstanceGroup, metadata: {name: nodes}, spec: \
                      {role: Node, nodeLabels: {a: edited}}}";
        fs::write(folder.path().join("instancegroup/nodes"), edited).unwrap();
        assert_eq!(groups.refresh().await, changed(&[]));

        write_group(folder.path(), "nodes", "a: '2', b: x");
        write_group(folder.path(), "more", "");
        assert_eq!(groups.refresh().await, changed(&["more", "nodes"]));
        assert_eq!(labels(&groups, "nodes"), ["a=2", "b=x", "node-role.kubernetes.io/node="]);

        fs::remove_dir_all(folder.path().join("igconfig/node/more")).unwrap();
        assert_eq!(groups.refresh().await, changed(&["more"]));
        assert_eq!(get(&groups, "more"), Group::Unknown);
        assert_eq!(get(&groups, "b"), Group::Unknown, "bastions are no Nodes");
    }

    #[tokio::test]
    async fn a_group_that_was_made_anew_with_another_role_is_told_from_the_one_before() {
        let (folder, groups) = store();
        write(folder.path(), "igconfig/apiserver/nodes", "node-role.kubernetes.io/api-server: ''");
        groups.refresh().await;
        let with = |role: &str| Labels::from([(format!("node-role.kubernetes.io/{role}"), String::new())]);
        assert_eq!(shown(groups.get("nodes", &with("api-server"))), ["node-role.kubernetes.io/api-server="]);
        assert_eq!(shown(groups.get("nodes", &with("node"))), ["a=1", "node-role.kubernetes.io/node="]);
        assert_eq!(get(&groups, "nodes"), Group::Unreadable, "the cloud does not say which");
    }

    #[tokio::test]
    async fn a_group_that_cannot_be_read_is_as_it_was_and_the_others_go_on() {
        let (folder, groups) = store();
        groups.refresh().await;
        assert!(groups.is_current());
        for name in ["nodes", "new"] {
            break_group(folder.path(), name);
        }
        write_group(folder.path(), "others", "b: '1'");
        assert_eq!(groups.refresh().await, changed(&["others"]));
        assert!(!groups.is_current());
        assert_eq!(labels(&groups, "nodes"), ["a=1", "node-role.kubernetes.io/node="]);
        assert_eq!(get(&groups, "new"), Group::Unreadable, "it may be the one that cannot be read");
        assert_eq!(groups.refresh().await, changed(&[]));
        assert!(!groups.is_current());
        write_group(folder.path(), "nodes", "");
        fs::remove_dir_all(folder.path().join("igconfig/node/new")).unwrap();
        assert_eq!(groups.refresh().await, changed(&["nodes"]));
        assert!(groups.is_current());
        assert_eq!(get(&groups, "new"), Group::Unknown);
    }

    #[tokio::test]
    async fn a_store_without_any_group_is_not_believed() {
        let (folder, groups) = store();
        groups.refresh().await;
        let away = folder.path().join("igconfig.away");
        fs::rename(folder.path().join("igconfig"), &away).unwrap();
        assert_eq!(groups.refresh().await, changed(&[]));
        assert!(!groups.is_current());
        assert_eq!(labels(&groups, "nodes"), ["a=1", "node-role.kubernetes.io/node="]);
        assert_eq!(get(&groups, "new"), Group::Unreadable, "it may be a new one");
        fs::rename(away, folder.path().join("igconfig")).unwrap();
        write_group(folder.path(), "new", "");
        assert_eq!(groups.refresh().await, changed(&["new"]));
        assert!(groups.is_current());
    }

    #[test]
    fn only_configurations_of_nodes_are_groups() {
        assert_eq!(group_of("igconfig/node/nodes/nodeupconfig.yaml"), Some("nodes"));
        assert_eq!(group_of("igconfig/control-plane/cp/nodeupconfig.yaml"), Some("cp"));
        for file in [
            "igconfig/node/nodes/",
            "igconfig/node/",
            "igconfig/node//nodeupconfig.yaml",
            "igconfig/node/old/nodes/nodeupconfig.yaml",
            "igconfig/node/nodes/nodeupconfig.yaml.bak",
            "igconfig/bastion/b/nodeupconfig.yaml",
            "instancegroup/nodes",
        ] {
            assert_eq!(group_of(file), None, "{file}");
        }
    }
}
