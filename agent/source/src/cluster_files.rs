//! Reads the files from which the node's configuration is derived: `cluster-completed.spec`, `instancegroup/<name>` and
//! others. The derivation needs no file that kOps itself derives for each group, such as `nodeupconfig.yaml`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use kops_agent_cluster::addons::bootstrap_channel;
use kops_agent_plan::derive;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::kops_release::{KopsRelease, WrittenBy};
use kops_agent_spec::{Cluster, InstanceGroup, InstanceGroupRole, Keyset, Secret};
use kops_agent_store::{Found, Store, StoreError};
use tokio::join;

use crate::store_files::{StoreFile, StoreFiles, each};

/// The names of the file with the completed cluster: the current name, and the name in older kOps releases.
pub const COMPLETED: [&str; 2] = ["cluster-completed.spec", "cluster.spec"];

/// The file in which kOps writes its version.
const KOPS_VERSION: &str = "kops-version.txt";

/// The files of the store from which a node's configuration is derived.
pub struct ClusterFiles {
    pub cluster: Cluster,
    pub cluster_file: StoreFile,
    /// The cluster that the user wrote, before kOps completed it. `None` if the derivation does not need it.
    pub user_cluster: Option<Cluster>,
    pub group: InstanceGroup,
    pub group_file: StoreFile,
    /// The version of kOps that wrote the store, from `kops-version.txt`. `None` if the file is missing, or if this machine may not read
    /// the file.
    pub kops_version: Option<String>,
    /// If this group is a control plane, the roles of all groups. Otherwise only this group's role.
    pub roles: BTreeSet<InstanceGroupRole>,
    /// The keysets that the derivation needs, by id.
    pub keysets: BTreeMap<String, Keyset>,
    /// The secrets that the derivation needs, by id.
    pub secrets: BTreeMap<String, Secret>,
    /// The text of `clusteraddons/default`, if the derivation needs it.
    pub cluster_addons: Option<String>,
    /// The bootstrap channel, if the derivation needs it.
    pub bootstrap_channel: Option<String>,
    /// The manifests of add-ons that the derivation needs, by path.
    pub addon_manifests: BTreeMap<String, String>,
    /// The files that this machine has no permission to read. Some of these files may be missing. Keysets are not in this list, because a
    /// worker usually has no permission to read any keyset. A worker's boot config has the parts of keysets that the worker needs, such as
    /// certificates.
    pub denied: Vec<StoreError>,
    /// Why this machine may not read a keyset, by the id of the keyset.
    pub denied_keysets: BTreeMap<String, String>,
}

/// Reads the cluster, the group, and the other files that a derivation needs.
pub async fn read(store: &Store, base: &str, group_name: &str) -> Result<ClusterFiles> {
    let ((cluster, cluster_file), (group, group_file)) = cluster_and_group(store, base, group_name).await?;
    let needed = derive::needed_files(&cluster, &group);
    let config_store = &cluster.spec.config_store;
    let files = StoreFiles::new(store, base, &config_store.keypairs, &config_store.secrets);

    let optional = |name: &'static str| needed.optional.contains(name);
    let url = format!("{base}/config");
    let (found_keysets, found_secrets, user_text, addons_text, channel, roles, version) = join!(
        each(needed.keysets.clone(), async |id| files.keyset(&id).await.map(|found| (id, found))),
        each(needed.secrets.clone(), async |id| files.secret(&id).await.map(|found| (id, found))),
        look_if_needed(optional("config"), store, &url),
        text_if(optional("clusteraddons/default"), store, format!("{base}/clusteraddons/default")),
        addons_if(needed.bootstrap_channel, store, base),
        roles(store, base, group_name, group.spec.role),
        kops_version(store, base),
    );
    let mut keysets = BTreeMap::new();
    let mut denied_keysets = BTreeMap::new();
    for (id, keyset) in found_keysets? {
        match keyset {
            Found::There(keyset) => drop(keysets.insert(id, keyset)),
            Found::Absent => {}
            Found::Denied(why) => drop(denied_keysets.insert(id, why.to_string())),
        }
    }
    let mut denied = Vec::new();
    let mut secrets = BTreeMap::new();
    for (id, secret) in found_secrets? {
        if let Some(secret) = take_readable(secret, &mut denied) {
            secrets.insert(id, secret);
        }
    }
    let user_text = take_readable(user_text?, &mut denied);
    let user_cluster = user_text.map(|text| Cluster::parse(&text, &url)).transpose()?;
    let cluster_addons = take_readable(addons_text?, &mut denied);
    let (channel, manifests) = channel?;
    let bootstrap_channel = take_readable(channel, &mut denied);
    let addon_manifests =
        manifests.into_iter().filter_map(|(path, text)| Some((path, take_readable(text, &mut denied)?)));
    let addon_manifests = addon_manifests.collect();
    let roles = roles?;
    Ok(ClusterFiles {
        cluster,
        cluster_file,
        user_cluster,
        group,
        group_file,
        kops_version: version?,
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

/// The version of kOps that wrote the store. `None` if the file with the version is missing, or if this machine may not read it.
pub async fn kops_version(store: &Store, base: &str) -> Result<Option<String>> {
    Ok(match store.read_if_present(&format!("{base}/{KOPS_VERSION}")).await? {
        Found::There(text) => Some(String::from_utf8_lossy(&text).trim().to_owned()),
        Found::Absent | Found::Denied(_) => None,
    })
}

/// Fails if the store has a file with the version of kOps, but this machine may not read it. Without the version, the agent would apply the
/// rules of the newest known kOps release.
pub(crate) async fn require_kops_version(store: &Store, base: &str) -> Result<()> {
    match store.read_if_present(&format!("{base}/{KOPS_VERSION}")).await? {
        Found::There(_) | Found::Absent => Ok(()),
        Found::Denied(why) => Err(why.into()),
    }
}

/// The release of kOps that wrote the store. If the version is unknown or not supported, returns the newest known release.
pub async fn release(store: &Store, base: &str) -> Result<KopsRelease> {
    let version = kops_version(store, base).await?;
    Ok(WrittenBy::of_store(version.as_deref()).map_or(KopsRelease::NEWEST, |by| by.release))
}

/// The labels of the nodes of a group, from the cluster and the group that are in the store now.
pub async fn node_labels(store: &Store, base: &str, group_name: &str) -> Result<BTreeMap<String, String>> {
    let ((cluster, _), (group, _)) = cluster_and_group(store, base, group_name).await?;
    let roles = roles(store, base, group_name, group.spec.role).await?;
    let release = release(store, base).await?;
    Ok(derive::node_labels(&cluster, &group, &roles, release))
}

async fn cluster_and_group(
    store: &Store,
    base: &str,
    group_name: &str,
) -> Result<((Cluster, StoreFile), (InstanceGroup, StoreFile))> {
    let (cluster_file, group_file) = join!(cluster_file(store, base), group_file(store, base, group_name));
    let cluster_file = cluster_file?;
    let cluster = Cluster::parse(&cluster_file.text, &cluster_file.url)?;
    let group_file = group_file?;
    let group = InstanceGroup::parse(&group_file.text, &group_file.url)?;
    Ok(((cluster, cluster_file), (group, group_file)))
}

/// The file with the completed cluster, under the first name of [`COMPLETED`] that exists. Fails if no file has one of these names.
pub async fn cluster_file(store: &Store, base: &str) -> Result<StoreFile> {
    let [url, former_url] = COMPLETED.map(|name| format!("{base}/{name}"));
    match store.read(&url).await {
        Ok(text) => Ok(StoreFile { url, text }),
        Err(error @ StoreError::NotFound { .. }) => match store.read_if_present(&former_url).await? {
            Found::There(text) => Ok(StoreFile { url: former_url, text }),
            Found::Absent => Err(error.into()),
            Found::Denied(why) => Err(why.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// Whether the store has no completed cluster. If this machine may not read the file, the file counts as present.
pub async fn is_absent(store: &Store, base: &str) -> Result<bool> {
    for name in COMPLETED {
        match store.read_if_present(&format!("{base}/{name}")).await? {
            Found::Absent => {}
            Found::There(_) | Found::Denied(_) => return Ok(false),
        }
    }
    Ok(true)
}

/// The file with the cluster that the user wrote. `None` if the file is missing, or if this machine may not read it.
pub async fn user_file(store: &Store, base: &str) -> Result<Option<StoreFile>> {
    let url = format!("{base}/config");
    Ok(match store.read_if_present(&url).await? {
        Found::There(text) => Some(StoreFile { url, text }),
        Found::Absent | Found::Denied(_) => None,
    })
}

/// Reads the file of an instance group. If the cluster lacks the group, the error lists the cluster's groups.
pub async fn group_file(store: &Store, base: &str, name: &str) -> Result<StoreFile> {
    let url = format!("{base}/instancegroup/{name}");
    match store.read(&url).await {
        Ok(text) => Ok(StoreFile { url, text }),
        Err(StoreError::NotFound { .. }) => {
            let others = match store.list(&format!("{base}/instancegroup")).await {
                Ok(groups) if groups.is_empty() => "; it has: none".to_owned(),
                Ok(groups) => format!("; it has: {}", groups.join(", ")),
                // If the store cannot list the groups, the error omits the list.
                Err(_) => String::new(),
            };
            Err(Failure::new(
                Kind::NoGroup,
                format!("{url} does not exist: the cluster has no instance group {name}{others}"),
            )
            .into())
        }
        Err(error) => Err(error.into()),
    }
}

/// If `own` is the control plane, returns the roles of all groups, because the labels of control-plane nodes depend on whether the cluster
/// has a group of API servers. For any other role, returns only `own`.
async fn roles(
    store: &Store,
    base: &str,
    own_name: &str,
    own: InstanceGroupRole,
) -> Result<BTreeSet<InstanceGroupRole>> {
    let mut roles = BTreeSet::from([own]);
    if own != InstanceGroupRole::ControlPlane {
        return Ok(roles);
    }
    let folder = format!("{base}/instancegroup");
    let listed = store.list(&folder).await.context(
        "finding the cluster's instance groups, because labels of control-plane nodes depend on them; this step is not needed with \
         --config-from nodeup-config",
    )?;
    let others = listed.into_iter().filter(|name| name != own_name);
    let role = async |name: String| {
        let url = format!("{folder}/{name}");
        Ok(InstanceGroup::parse(&store.read(&url).await?, &url)?.spec.role)
    };
    roles.extend(each(others, role).await?);
    Ok(roles)
}

/// The bootstrap channel, and the manifests from which a node's configuration is derived. Each manifest comes with its path in the channel.
type Addons = (Found<String>, Vec<(String, Found<String>)>);

async fn addons_if(is_needed: bool, store: &Store, base: &str) -> Result<Addons> {
    let channel = text_if(is_needed, store, bootstrap_channel(base)).await?;
    let paths = match &channel {
        Found::There(channel) => derive::addon_manifests(channel)?,
        Found::Absent | Found::Denied(_) => Default::default(),
    };
    let manifest = async |path| {
        let text = text_if(true, store, format!("{base}/addons/{path}")).await?;
        Ok((path, text))
    };
    Ok((channel, each(paths, manifest).await?))
}

/// The text of a file in the store. `Absent` if the file is not needed.
async fn text_if(is_needed: bool, store: &Store, url: String) -> Result<Found<String>> {
    let found = look_if_needed(is_needed, store, &url).await?;
    let text = found.try_map(|bytes| {
        String::from_utf8(bytes).map_err(|_| Failure::new(Kind::FileUnreadable, format!("{url} is not text")))
    });
    Ok(text?)
}

async fn look_if_needed(is_needed: bool, store: &Store, url: &str) -> Result<Found<Vec<u8>>> {
    match is_needed {
        true => Ok(store.read_if_present(url).await?),
        false => Ok(Found::Absent),
    }
}

/// The value of a file. `None` if the file is missing, or if this machine may not read it. In the second case, adds the error to `denied`.
fn take_readable<T>(found: Found<T>, denied: &mut Vec<StoreError>) -> Option<T> {
    match found {
        Found::There(found) => Some(found),
        Found::Absent => None,
        Found::Denied(why) => {
            denied.push(why);
            None
        }
    }
}
