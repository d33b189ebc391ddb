//! The instance groups of the cluster, as the state store has them, and the labels of their nodes.
//!
//! The store is looked at every so often, by one request that tells which files are others than before. Where it cannot
//! be read, what was last known holds.

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
    /// The store has not been read yet, and cannot be.
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
    versions: BTreeMap<String, String>,
    /// Since when the store cannot be read, if it cannot: said once.
    failing: bool,
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
            Some(groups) => groups.get(name).cloned().map_or(Group::Unknown, Group::Known),
        }
    }

    /// Whether the store could be read when it was last looked at.
    pub fn is_current(&self) -> bool {
        let known = self.known();
        known.groups.is_some() && !known.failing
    }

    /// Looks at the store, and tells which groups have other labels than before, or came or went.
    pub async fn refresh(&self) -> Changed {
        let before = self.known().versions.clone();
        match self.read(&before).await {
            Ok(None) => {
                self.recovered();
                Changed::default()
            }
            Ok(Some((versions, groups))) => {
                self.recovered();
                self.replace(versions, groups)
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

    async fn read(
        &self,
        before: &BTreeMap<String, String>,
    ) -> Result<Option<(BTreeMap<String, String>, BTreeMap<String, Arc<Labels>>)>> {
        let all = self.store.versions(&self.base, COMPLETED_SPEC, BEHIND_GROUPS).await?;
        let is_read = |name: &String| name == COMPLETED_SPEC || name.starts_with(GROUPS);
        let versions: BTreeMap<String, String> = all.into_iter().filter(|(name, _)| is_read(name)).collect();
        if versions == *before {
            return Ok(None);
        }
        let groups = self.read_all(versions.keys()).await?;
        Ok(Some((versions, groups)))
    }

    async fn read_all(&self, files: impl Iterator<Item = &String>) -> Result<BTreeMap<String, Arc<Labels>>> {
        let url = format!("{}/{COMPLETED_SPEC}", self.base);
        let cluster = Cluster::parse(&self.store.read(&url).await?, &url)?;
        let mut groups = Vec::new();
        for name in files.filter_map(|file| file.strip_prefix(GROUPS)) {
            let url = format!("{}/{GROUPS}{name}", self.base);
            match self.store.read(&url).await {
                Ok(text) => groups.push(InstanceGroup::parse(&text, &url)?),
                // It was deleted since it was listed.
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error).context("reading an instance group"),
            }
        }
        let roles: BTreeSet<InstanceGroupRole> = groups.iter().map(|group| group.spec.role).collect();
        let labels = |group: &InstanceGroup| Arc::new(derive::node_labels(&cluster, group, &roles));
        Ok(groups.iter().map(|group| (group.metadata.name.clone(), labels(group))).collect())
    }

    fn replace(&self, versions: BTreeMap<String, String>, groups: BTreeMap<String, Arc<Labels>>) -> Changed {
        let mut known = self.known();
        let before = known.groups.take().unwrap_or_default();
        let names: BTreeSet<&String> = before.keys().chain(groups.keys()).collect();
        let changed =
            names.into_iter().filter(|name| before.get(*name) != groups.get(*name)).cloned().collect();
        known.versions = versions;
        known.groups = Some(groups);
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
        for name in ["instancegroup", "backups/etcd", "igconfig/node/nodes"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join(COMPLETED_SPEC), CLUSTER).unwrap();
        fs::write(folder.path().join("igconfig/node/nodes/nodeupconfig.yaml"), "").unwrap();
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
    async fn what_was_last_known_holds_while_the_store_cannot_be_read() {
        let (folder, groups) = store();
        groups.refresh().await;
        assert!(groups.is_current());
        fs::write(folder.path().join("instancegroup/nodes"), "{spec: [").unwrap();
        assert_eq!(groups.refresh().await, changed(&[]));
        assert!(!groups.is_current());
        assert_eq!(labels(&groups, "nodes"), ["a=1", "node-role.kubernetes.io/node="]);
        write_group(folder.path(), "nodes", "role: Node");
        assert_eq!(groups.refresh().await, changed(&["nodes"]));
        assert!(groups.is_current());
    }
}
