//! The node's configuration derived from `cluster-completed.spec` and `instancegroup/<name>`: the
//! agent's own way, which needs nothing that kOps prepares per group.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use kops_agent_plan::derive;
use kops_agent_process::exit::WrongConfiguration;
use kops_agent_spec::{Cluster, InstanceGroup, InstanceGroupRole, Keyset, Secret};
use kops_agent_store::{Found, Store, StoreError};

use super::store_files::{StoreFile, StoreFiles};

/// What a derivation reads of the store.
pub(crate) struct ClusterFiles {
    /// The completed cluster.
    pub(crate) cluster: Cluster,
    /// The file that it is in.
    pub(crate) cluster_file: StoreFile,
    /// The cluster as its user wrote it, where it is needed.
    pub(super) user_cluster: Option<Cluster>,
    /// The group.
    pub(crate) group: InstanceGroup,
    /// The file that it is in.
    pub(crate) group_file: StoreFile,
    /// The roles of all groups.
    pub(super) roles: BTreeSet<InstanceGroupRole>,
    /// The keysets that derivation needs, by id.
    pub(super) keysets: BTreeMap<String, Keyset>,
    /// The secrets that derivation needs, by id.
    pub(super) secrets: BTreeMap<String, Secret>,
    pub(super) cluster_addons: Option<String>,
    pub(super) bootstrap_channel: Option<String>,
    pub(super) addon_manifests: BTreeMap<String, String>,
    /// Files that this machine may not read, and that may be there. Keysets are none of them: a worker may not read any,
    /// and has what it needs of them in its boot config.
    pub(super) denied: Vec<StoreError>,
    /// Keysets that this machine may not read, by id, and why.
    pub(super) denied_keysets: BTreeMap<String, String>,
}

/// Reads the cluster, the group, and what their derivation needs besides.
pub(crate) async fn read(store: &Store, base: &str, group_name: &str) -> Result<ClusterFiles> {
    let cluster_file = cluster_file(store, base).await?;
    let cluster = Cluster::parse(&cluster_file.text, &cluster_file.url)?;
    let group_file = group_file(store, base, group_name).await?;
    let group = InstanceGroup::parse(&group_file.text, &group_file.url)?;
    let needed = derive::needed_files(&cluster, &group);
    let config_store = &cluster.spec.config_store;
    let files = StoreFiles::new(store, base, &config_store.keypairs, &config_store.secrets);

    let mut keysets = BTreeMap::new();
    let mut denied_keysets = BTreeMap::new();
    for id in needed.keysets {
        match files.keyset(&id).await? {
            Found::There(keyset) => drop(keysets.insert(id, keyset)),
            Found::Absent => {}
            Found::Denied(why) => drop(denied_keysets.insert(id, why.to_string())),
        }
    }
    let mut denied = Vec::new();
    let mut secrets = BTreeMap::new();
    for id in needed.secrets {
        if let Some(secret) = known(files.secret(&id).await?, &mut denied) {
            secrets.insert(id, secret);
        }
    }
    let optional = |name: &'static str| needed.optional.contains(name);
    let user_cluster = match optional("config") {
        true => {
            let url = format!("{base}/config");
            let text = known(store.look(&url).await?, &mut denied);
            let file = text.map(|text| StoreFile { url, text });
            file.map(|file| Cluster::parse(&file.text, &file.url)).transpose()?
        }
        false => None,
    };
    let cluster_addons = match optional("clusteraddons/default") {
        true => text_if_there(store, &format!("{base}/clusteraddons/default"), &mut denied).await?,
        false => None,
    };
    let (bootstrap_channel, addon_manifests) = match needed.bootstrap_channel {
        true => addons(store, base, &mut denied).await?,
        false => (None, BTreeMap::new()),
    };
    let roles = roles(store, base, &group).await?;
    Ok(ClusterFiles {
        cluster,
        cluster_file,
        user_cluster,
        group,
        group_file,
        roles,
        keysets,
        secrets,
        cluster_addons,
        bootstrap_channel,
        addon_manifests,
        denied,
        denied_keysets,
    })
}

/// The file of the completed cluster; older kOps releases called it `cluster.spec`.
pub(crate) async fn cluster_file(store: &Store, base: &str) -> Result<StoreFile> {
    let url = format!("{base}/cluster-completed.spec");
    match store.read(&url).await {
        Ok(text) => Ok(StoreFile { url, text }),
        Err(error @ StoreError::NotFound { .. }) => {
            let url = format!("{base}/cluster.spec");
            match store.look(&url).await? {
                Found::There(text) => Ok(StoreFile { url, text }),
                Found::Absent | Found::Denied(_) => Err(error.into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// The file of the cluster as its user wrote it, where this machine may read it.
pub(crate) async fn user_file(store: &Store, base: &str) -> Result<Option<StoreFile>> {
    let url = format!("{base}/config");
    Ok(match store.look(&url).await? {
        Found::There(text) => Some(StoreFile { url, text }),
        Found::Absent | Found::Denied(_) => None,
    })
}

/// The file of a group.
pub(crate) async fn group_file(store: &Store, base: &str, name: &str) -> Result<StoreFile> {
    let url = format!("{base}/instancegroup/{name}");
    match store.read(&url).await {
        Ok(text) => Ok(StoreFile { url, text }),
        Err(StoreError::NotFound { .. }) => {
            let groups = store.list(&format!("{base}/instancegroup")).await.unwrap_or_default();
            let groups = if groups.is_empty() { "none".to_owned() } else { groups.join(", ") };
            Err(WrongConfiguration(format!(
                "{url} does not exist: the cluster has no instance group {name}; it has: {groups}"
            ))
            .into())
        }
        Err(error) => Err(error.into()),
    }
}

/// The roles of all groups: a group of API servers changes the labels of the control plane's.
async fn roles(store: &Store, base: &str, group: &InstanceGroup) -> Result<BTreeSet<InstanceGroupRole>> {
    let mut roles = BTreeSet::from([group.spec.role]);
    if group.spec.role != InstanceGroupRole::ControlPlane {
        return Ok(roles);
    }
    let folder = format!("{base}/instancegroup");
    for name in store.list(&folder).await? {
        let url = format!("{folder}/{name}");
        roles.insert(InstanceGroup::parse(&store.read(&url).await?, &url)?.spec.role);
    }
    Ok(roles)
}

async fn addons(
    store: &Store,
    base: &str,
    denied: &mut Vec<StoreError>,
) -> Result<(Option<String>, BTreeMap<String, String>)> {
    let channel = text_if_there(store, &format!("{base}/addons/bootstrap-channel.yaml"), denied).await?;
    let Some(channel) = channel else {
        return Ok((None, BTreeMap::new()));
    };
    let mut manifests = BTreeMap::new();
    for path in derive::addon_manifests(&channel).map_err(WrongConfiguration)? {
        if let Some(manifest) = text_if_there(store, &format!("{base}/addons/{path}"), denied).await? {
            manifests.insert(path, manifest);
        }
    }
    Ok((Some(channel), manifests))
}

async fn text_if_there(store: &Store, url: &str, denied: &mut Vec<StoreError>) -> Result<Option<String>> {
    let Some(bytes) = known(store.look(url).await?, denied) else { return Ok(None) };
    Ok(Some(String::from_utf8(bytes).map_err(|_| WrongConfiguration(format!("{url} is not text")))?))
}

/// What is known to be there; what is denied is noted.
fn known<T>(found: Found<T>, denied: &mut Vec<StoreError>) -> Option<T> {
    match found {
        Found::There(found) => Some(found),
        Found::Absent => None,
        Found::Denied(why) => {
            denied.push(why);
            None
        }
    }
}
