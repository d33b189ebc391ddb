//! Step 3 of the way: from the boot config to everything that decides the node.
//!
//! Two sources give the same result. `cluster_spec` derives the node's configuration from the
//! completed Cluster and the InstanceGroup; `nodeup_config` reads what kOps derived. `auto` does both
//! where the boot config pins the second, holds one against the other, and lets the pinned one win:
//! kOps vouched for it.

pub(crate) mod cluster_spec;
mod nodeup_config;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use kops_agent_plan::derive;
use kops_agent_plan::facts::Facts;
use kops_agent_plan::resolve::Inputs;
use kops_agent_plan::spec::{BootConfig, Keyset, NodeupConfig, Secret};

use crate::cli::{ConfigFrom, SpecArgs};
use crate::exit::WrongConfiguration;
use crate::hashes::HashSource;
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
pub async fn read(
    store: &Store,
    args: &SpecArgs,
    boot: BootConfig,
    facts: Facts,
    hashes: HashSource,
) -> Result<NodeSpec> {
    let base = config_base(args, &boot)?;
    let config = match args.config_from {
        ConfigFrom::NodeupConfig => nodeup_config::read(store, &base, &boot).await?,
        ConfigFrom::ClusterSpec => {
            cluster_spec::derive(store, &base, args, &boot, &facts, hashes, None).await?
        }
        ConfigFrom::Auto => either(store, &base, args, &boot, &facts, hashes).await?,
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
async fn either(
    store: &Store,
    base: &str,
    args: &SpecArgs,
    boot: &BootConfig,
    facts: &Facts,
    hashes: HashSource,
) -> Result<NodeupConfig> {
    if boot.nodeup_config_hash.is_empty() {
        return cluster_spec::derive(store, base, args, boot, facts, hashes, None).await;
    }
    let pinned = nodeup_config::read(store, base, boot).await?;
    match cluster_spec::derive(store, base, args, boot, facts, HashSource::Known, Some(&pinned)).await {
        Ok(derived) => report_differences(&derived, &pinned),
        Err(error) => log::warn!(
            "the cluster spec could not be held against the pinned nodeupconfig: {}",
            crate::output::error_text(&error)
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
        "the pinned nodeupconfig and the one derived from the cluster spec differ; the pinned one is used ({} differing):",
        differences.len()
    );
    for difference in differences {
        log::warn!("  {difference}");
    }
}

/// Reads what the configuration refers to: keysets, secrets and manifests.
async fn complete(
    store: &Store,
    base: &str,
    boot: BootConfig,
    mut config: NodeupConfig,
    facts: Facts,
) -> Result<NodeSpec> {
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
    let (keypairs, secrets) = match &spec.inputs.config.config_store {
        Some(config_store) => (config_store.keypairs.clone(), config_store.secrets.clone()),
        None => Default::default(),
    };
    let files = StoreFiles::new(store, base, &keypairs, &secrets);
    for name in spec.inputs.wanted_keysets() {
        if let Some(keyset) = files.keyset(&name).await? {
            spec.inputs.keysets.insert(name, keyset);
        }
    }
    for name in spec.inputs.wanted_secrets() {
        if let Some(secret) = files.secret(&name).await? {
            spec.inputs.secret_names.insert(name.clone());
            spec.secrets.insert(name, secret);
        }
    }
    for path in spec.inputs.wanted_manifests() {
        let url = if path.contains("://") { path.clone() } else { format!("{base}/{path}") };
        let manifest = store.read(&url).await.with_context(|| format!("reading manifest {path}"))?;
        let manifest =
            String::from_utf8(manifest).map_err(|_| WrongConfiguration(format!("{url} is not text")))?;
        spec.inputs.manifests.insert(path, manifest);
    }
    Ok(spec)
}

/// The folders of keysets and secrets in a store.
pub(crate) struct StoreFiles<'a> {
    store: &'a Store,
    keypairs: String,
    secrets: String,
}

impl<'a> StoreFiles<'a> {
    /// The folders as the configuration names them, or where they usually are.
    pub(crate) fn new(store: &'a Store, base: &str, keypairs: &str, secrets: &str) -> StoreFiles<'a> {
        let folder = |named: &str, usual: &str| match named {
            "" => format!("{base}/{usual}"),
            named => named.trim_end_matches('/').to_owned(),
        };
        StoreFiles { store, keypairs: folder(keypairs, "pki"), secrets: folder(secrets, "secrets") }
    }

    /// A keyset, where there is one and this node may read it. Workers usually may not.
    pub(crate) async fn keyset(&self, id: &str) -> Result<Option<Keyset>> {
        for folder in [Some(id), derive::former_keyset_name(id)].into_iter().flatten() {
            let url = format!("{}/private/{folder}/keyset.yaml", self.keypairs);
            if let Some(text) = read_if_there(self.store, &url).await? {
                return Ok(Some(Keyset::parse(&text, &url)?));
            }
        }
        Ok(None)
    }

    /// A secret, where there is one and this node may read it.
    pub(crate) async fn secret(&self, id: &str) -> Result<Option<Secret>> {
        let url = format!("{}/{id}", self.secrets);
        let text = read_if_there(self.store, &url).await?;
        Ok(text.map(|text| Secret::parse(&text, &url)).transpose()?)
    }
}

/// The file, or nothing where there is none or this node may not read it.
async fn read_if_there(store: &Store, url: &str) -> Result<Option<Vec<u8>>> {
    match store.read(url).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(StoreError::NotFound { .. } | StoreError::Forbidden { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
