//! Step 3 of the way: from the boot config to everything that decides the node.
//!
//! Two sources give the same result. `cluster_spec` derives the node's configuration from the
//! completed Cluster and the InstanceGroup; `nodeup_config` reads what kOps derived. `auto` does both
//! where the boot config pins the second, holds one against the other, and lets the pinned one win:
//! kOps vouched for it.

mod cluster_spec;
mod nodeup_config;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use kops_agent_plan::derive;
use kops_agent_plan::facts::Facts;
use kops_agent_plan::resolve::Inputs;
use kops_agent_plan::spec::{BootConfig, Keyset, NodeupConfig, Secret};

use crate::cli::{ConfigFrom, SpecArgs};
use crate::exit::WrongConfiguration;
use crate::store::{Store, StoreError};

/// What was read of the store for one node.
#[derive(Debug)]
pub struct NodeSpec {
    /// What decisions are made from.
    pub inputs: Inputs,
    /// The secrets of the store that this node may read, by name; for applying only.
    pub secrets: BTreeMap<String, Secret>,
}

/// Reads everything that decides the node of this boot config.
///
/// # Errors
/// The store's, and whatever is wrong with the files in it.
pub async fn read(store: &Store, args: &SpecArgs, boot: BootConfig, facts: Facts) -> Result<NodeSpec> {
    let base = config_base(args, &boot)?;
    let config = match args.config_from {
        ConfigFrom::NodeupConfig => nodeup_config::read(store, &base, &boot).await?,
        ConfigFrom::ClusterSpec => cluster_spec::derive(store, &base, args, &boot, &facts).await?,
        ConfigFrom::Auto => either(store, &base, args, &boot, &facts).await?,
    };
    complete(store, &base, boot, config, facts).await
}

fn config_base(args: &SpecArgs, boot: &BootConfig) -> Result<String> {
    let base = args.config_base.clone().or_else(|| boot.config_base.clone()).ok_or_else(|| {
        WrongConfiguration(format!(
            "the boot config {} has no ConfigBase, and getting the configuration from a config server is not \
             supported yet; give the cluster's folder in the state store with --config-base",
            args.conf.display()
        ))
    })?;
    Ok(base.trim_end_matches('/').to_owned())
}

/// The derived configuration decides, unless the boot config pins the one that kOps wrote.
async fn either(store: &Store, base: &str, args: &SpecArgs, boot: &BootConfig, facts: &Facts) -> Result<NodeupConfig> {
    if boot.nodeup_config_hash.is_empty() {
        return cluster_spec::derive(store, base, args, boot, facts).await;
    }
    let pinned = nodeup_config::read(store, base, boot).await?;
    match cluster_spec::derive_with_hashes_of(store, base, args, boot, facts, &pinned).await {
        Ok(derived) => report_differences(&derived, &pinned),
        Err(error) => log::warn!(
            "the configuration could not be derived from the cluster spec to check the pinned nodeupconfig: {error:#}"
        ),
    }
    Ok(pinned)
}

fn report_differences(derived: &NodeupConfig, pinned: &NodeupConfig) {
    let differences = derive::differences(derived, pinned);
    if differences.is_empty() {
        log::debug!("the configuration derived from the cluster spec equals the pinned nodeupconfig");
        return;
    }
    log::warn!(
        "the pinned nodeupconfig and the one derived from the cluster spec differ in {} fields; the pinned one is used:",
        differences.len()
    );
    for difference in differences {
        log::warn!("  {difference}");
    }
}

/// Reads what the configuration refers to: keysets, secrets and manifests.
async fn complete(store: &Store, base: &str, boot: BootConfig, mut config: NodeupConfig, facts: Facts) -> Result<NodeSpec> {
    // A worker's nodeupconfig leaves out the authority that its boot config brings.
    if let Some(server) = &boot.config_server
        && !server.ca_certificates.is_empty()
    {
        config.cas.entry("kubernetes-ca".into()).or_insert_with(|| server.ca_certificates.clone());
    }
    let mut spec = NodeSpec {
        inputs: Inputs {
            boot,
            config,
            keysets: BTreeMap::new(),
            secret_names: BTreeSet::new(),
            manifests: BTreeMap::new(),
            facts,
        },
        secrets: BTreeMap::new(),
    };
    for name in spec.inputs.wanted_keysets() {
        if let Some(keyset) = keyset(store, base, &spec.inputs.config, &name).await? {
            spec.inputs.keysets.insert(name, keyset);
        }
    }
    for name in spec.inputs.wanted_secrets() {
        if let Some(secret) = secret(store, base, &spec.inputs.config, &name).await? {
            spec.inputs.secret_names.insert(name.clone());
            spec.secrets.insert(name, secret);
        }
    }
    for path in spec.inputs.wanted_manifests() {
        let url = if path.contains("://") { path.clone() } else { format!("{base}/{path}") };
        let manifest = store.read(&url).await.with_context(|| format!("reading manifest {path}"))?;
        let manifest = String::from_utf8(manifest).map_err(|_| WrongConfiguration(format!("{url} is not text")))?;
        spec.inputs.manifests.insert(path, manifest);
    }
    Ok(spec)
}

/// A keyset, where this node may read it. Workers usually may not.
async fn keyset(store: &Store, base: &str, config: &NodeupConfig, name: &str) -> Result<Option<Keyset>> {
    let folder = config.config_store.as_ref().map(|store| store.keypairs.clone()).filter(|folder| !folder.is_empty());
    let folder = folder.unwrap_or_else(|| format!("{base}/pki"));
    for id in [Some(name), former_keyset_name(name)].into_iter().flatten() {
        let url = format!("{}/private/{id}/keyset.yaml", folder.trim_end_matches('/'));
        if let Some(bytes) = read_if_there(store, &url).await? {
            return Ok(Some(Keyset::parse(&bytes, &url)?));
        }
    }
    Ok(None)
}

/// The folder of a keyset in stores of older kOps releases (upup/pkg/fi/vfs_keystorereader.go).
fn former_keyset_name(name: &str) -> Option<&'static str> {
    match name {
        "kubernetes-ca" => Some("ca"),
        "service-account" => Some("master"),
        _ => None,
    }
}

async fn secret(store: &Store, base: &str, config: &NodeupConfig, name: &str) -> Result<Option<Secret>> {
    let folder = config.config_store.as_ref().map(|store| store.secrets.clone()).filter(|folder| !folder.is_empty());
    let folder = folder.unwrap_or_else(|| format!("{base}/secrets"));
    let url = format!("{}/{name}", folder.trim_end_matches('/'));
    let bytes = read_if_there(store, &url).await?;
    bytes.map(|bytes| Secret::parse(&bytes, &url)).transpose().map_err(Into::into)
}

/// The file, or nothing where there is none or this node may not read it.
async fn read_if_there(store: &Store, url: &str) -> Result<Option<Vec<u8>>> {
    match store.read(url).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(StoreError::NotFound { .. } | StoreError::Forbidden { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
