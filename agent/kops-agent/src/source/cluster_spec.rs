//! The node's configuration derived from `cluster-completed.spec` and `instancegroup/<name>`: the
//! agent's own way, which needs nothing that kOps prepares per group.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use kops_agent_plan::derive::{self, Inputs, KnownHashes};
use kops_agent_plan::facts::Facts;
use kops_agent_plan::spec::{
    BootConfig, Cluster, InstanceGroup, InstanceGroupRole, Keyset, NodeupConfig, Secret,
};

use super::{StoreFiles, read_if_there};
use crate::cli::SpecArgs;
use crate::exit::WrongConfiguration;
use crate::hashes::{self, HashSource};
use crate::store::{Store, StoreError};

/// What a derivation reads of the store.
pub(crate) struct ClusterFiles {
    pub(crate) cluster: Cluster,
    user_cluster: Option<Cluster>,
    pub(crate) group: InstanceGroup,
    roles: BTreeSet<InstanceGroupRole>,
    keysets: BTreeMap<String, Keyset>,
    secrets: BTreeMap<String, Secret>,
    cluster_addons: Option<String>,
    bootstrap_channel: Option<String>,
    addon_manifests: BTreeMap<String, String>,
}

/// Derives the configuration for the group of the boot config. `pinned` is the configuration that kOps
/// wrote, where it is at hand: its asset hashes are then as good as ours.
pub(super) async fn derive(
    store: &Store,
    base: &str,
    args: &SpecArgs,
    boot: &BootConfig,
    facts: &Facts,
    hash_source: HashSource,
    pinned: Option<&NodeupConfig>,
) -> Result<NodeupConfig> {
    let files = read(store, base, &boot.instance_group_name).await?;
    let mut known = pinned.map(KnownHashes::of_config).unwrap_or_default();
    if let Some(file) = &args.asset_hashes {
        hashes::read_file(file, &mut known)?;
    }
    let inputs = Derivation {
        files: &files,
        machine_type: facts.cloud.aws.as_ref().map(|aws| aws.instance_type.as_str()),
    };
    let told = hashes::missing(store, hash_source, &inputs.inputs(&known), Some(facts.arch), &known).await?;
    known.extend(told);
    derive::nodeup_config(&inputs.inputs(&known)).context("the cluster spec is wrong")
}

/// The files of a derivation and what else it is made from.
pub(crate) struct Derivation<'a> {
    pub(crate) files: &'a ClusterFiles,
    pub(crate) machine_type: Option<&'a str>,
}

impl<'a> Derivation<'a> {
    /// Everything that the derivation is made from.
    pub(crate) fn inputs(&self, known: &'a KnownHashes) -> Inputs<'a> {
        let files = self.files;
        Inputs {
            cluster: &files.cluster,
            user_cluster: files.user_cluster.as_ref(),
            instance_group: &files.group,
            roles: &files.roles,
            keysets: &files.keysets,
            secrets: &files.secrets,
            cluster_addons: files.cluster_addons.as_deref(),
            bootstrap_channel: files.bootstrap_channel.as_deref(),
            addon_manifests: &files.addon_manifests,
            asset_hashes: known,
            machine_type: self.machine_type,
            machine_type_has_gpu: None,
            worker_kubernetes_version: None,
            api_server_addresses: &[],
            etcd_addresses: &[],
        }
    }
}

/// Reads the cluster, the group, and what their derivation needs besides.
pub(crate) async fn read(store: &Store, base: &str, group_name: &str) -> Result<ClusterFiles> {
    let cluster = cluster(store, base).await?;
    let group = instance_group(store, base, group_name).await?;
    let needed = derive::needed_files(&cluster, &group);
    let config_store = &cluster.spec.config_store;
    let files = StoreFiles::new(store, base, &config_store.keypairs, &config_store.secrets);

    let mut keysets = BTreeMap::new();
    for id in needed.keysets {
        if let Some(keyset) = files.keyset(&id).await? {
            keysets.insert(id, keyset);
        }
    }
    let mut secrets = BTreeMap::new();
    for id in needed.secrets {
        if let Some(secret) = files.secret(&id).await? {
            secrets.insert(id, secret);
        }
    }
    let optional = |name: &'static str| needed.optional.contains(name);
    let user_cluster = match optional("config") {
        true => {
            let url = format!("{base}/config");
            let text = read_if_there(store, &url).await?;
            text.map(|text| Cluster::parse(&text, &url)).transpose()?
        }
        false => None,
    };
    let cluster_addons = match optional("clusteraddons/default") {
        true => text_if_there(store, &format!("{base}/clusteraddons/default")).await?,
        false => None,
    };
    let (bootstrap_channel, addon_manifests) = match needed.bootstrap_channel {
        true => addons(store, base).await?,
        false => (None, BTreeMap::new()),
    };
    let roles = roles(store, base, &group).await?;
    Ok(ClusterFiles {
        cluster,
        user_cluster,
        group,
        roles,
        keysets,
        secrets,
        cluster_addons,
        bootstrap_channel,
        addon_manifests,
    })
}

/// The completed cluster; older kOps releases called the file `cluster.spec`.
async fn cluster(store: &Store, base: &str) -> Result<Cluster> {
    let completed = format!("{base}/cluster-completed.spec");
    match store.read(&completed).await {
        Ok(text) => Ok(Cluster::parse(&text, &completed)?),
        Err(error @ StoreError::NotFound { .. }) => {
            let older = format!("{base}/cluster.spec");
            match read_if_there(store, &older).await? {
                Some(text) => Ok(Cluster::parse(&text, &older)?),
                None => Err(error.into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

async fn instance_group(store: &Store, base: &str, name: &str) -> Result<InstanceGroup> {
    let url = format!("{base}/instancegroup/{name}");
    match store.read(&url).await {
        Ok(text) => Ok(InstanceGroup::parse(&text, &url)?),
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

async fn addons(store: &Store, base: &str) -> Result<(Option<String>, BTreeMap<String, String>)> {
    let Some(channel) = text_if_there(store, &format!("{base}/addons/bootstrap-channel.yaml")).await? else {
        return Ok((None, BTreeMap::new()));
    };
    let mut manifests = BTreeMap::new();
    for path in derive::addon_manifests(&channel).map_err(WrongConfiguration)? {
        if let Some(manifest) = text_if_there(store, &format!("{base}/addons/{path}")).await? {
            manifests.insert(path, manifest);
        }
    }
    Ok((Some(channel), manifests))
}

async fn text_if_there(store: &Store, url: &str) -> Result<Option<String>> {
    let Some(bytes) = read_if_there(store, url).await? else { return Ok(None) };
    Ok(Some(String::from_utf8(bytes).map_err(|_| WrongConfiguration(format!("{url} is not text")))?))
}
