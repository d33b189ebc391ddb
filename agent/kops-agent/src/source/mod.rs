//! Step 3 of the way: from the boot config to everything that decides the node.
//!
//! Three sources give the same result. `cluster_spec` reads the completed Cluster and the InstanceGroup, from
//! which `derivation` derives the node's configuration; `nodeup_config` reads what kOps derived. Where the boot
//! config pins that one, they are held against each other: equal bytes prove the whole derivation, and where
//! they differ the pinned one wins if it can be read, for kOps vouched for it. `config_server` asks kops-controller for
//! what kOps derived, on a machine that does not read the store.

pub(crate) mod cluster_spec;
mod config_server;
pub(crate) mod derivation;
mod nodeup_config;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use kops_agent_plan::derive;
use kops_agent_plan::facts::Facts;
use kops_agent_plan::resolve::{Inputs, Problems};
use kops_agent_plan::spec::{BootConfig, Keyset, NodeupConfig, Secret};

use crate::bootstrap_client::KopsController;
use crate::cli::{ConfigFrom, OnHashMismatch, SpecArgs};
use crate::exit::WrongConfiguration;
use crate::hashes::HashSource;
use crate::store::{Store, StoreError};

use cluster_spec::StoreFile;
use derivation::{Derivation, Derived, Proof};
use nodeup_config::Pinned;

/// What was read of the store for one node.
pub struct NodeSpec {
    /// What decisions are made from.
    pub inputs: Inputs,
    /// The secrets of the store that this node may read, by name; for applying only.
    pub secrets: BTreeMap<String, Secret>,
    /// What is wrong with the cluster spec, where the node is decided from it.
    pub problems: Problems,
    /// What the node is decided from.
    pub origin: Origin,
}

/// The files of the store that a node's configuration comes from.
pub enum Origin {
    /// The cluster and the instance group.
    ClusterSpec(Box<Derivation>),
    /// `nodeupconfig.yaml`.
    NodeupConfig(StoreFile),
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
    let has_store = args.config_base.is_some() || boot.config_base.is_some();
    if !has_store && args.config_from != ConfigFrom::ClusterSpec && config_server::is_to_be_asked(&boot) {
        return served(store, args, boot, facts).await;
    }
    let base = config_base(args, &boot)?;
    if args.config_from == ConfigFrom::NodeupConfig {
        let pinned = nodeup_config::read(store, &base, &boot).await?;
        return complete(store, &base, boot, facts, Configuration::of_pinned(pinned)).await;
    }
    let pinned = nodeup_config::pinned(store, &base, &boot).await?;
    let configuration = match (args.config_from, pinned) {
        (ConfigFrom::Auto, Some(pinned)) => {
            pinned_and_proven(store, &base, args, &boot, &facts, pinned).await
        }
        (_, pinned) => derived(store, &base, args, &boot, &facts, pinned, hashes).await?,
    };
    complete(store, &base, boot, facts, configuration).await
}

/// The cluster's folder in the state store.
pub(crate) fn config_base(args: &SpecArgs, boot: &BootConfig) -> Result<String> {
    let base = args.config_base.clone().or_else(|| boot.config_base.clone()).ok_or_else(|| {
        WrongConfiguration(format!(
            "the boot config {} has no ConfigBase, so the cluster's folder in the state store is not known; give it with \
             --config-base",
            args.conf.display()
        ))
    })?;
    Ok(base.trim_end_matches('/').to_owned())
}

/// A node's configuration, and what is known of where it comes from.
struct Configuration {
    config: NodeupConfig,
    problems: Problems,
    origin: Origin,
}

impl Configuration {
    fn of_pinned(pinned: Pinned) -> Configuration {
        Configuration {
            config: pinned.config,
            problems: Problems::default(),
            origin: Origin::NodeupConfig(pinned.file),
        }
    }

    fn of_derived(derivation: Derivation, derived: Derived) -> Configuration {
        Configuration {
            config: derived.config,
            problems: derived.problems,
            origin: Origin::ClusterSpec(Box::new(derivation)),
        }
    }
}

/// The pinned configuration; the derived one where it is the same, because more is known of that.
async fn pinned_and_proven(
    store: &Store,
    base: &str,
    args: &SpecArgs,
    boot: &BootConfig,
    facts: &Facts,
    pinned: Pinned,
) -> Configuration {
    let derived = async {
        let files = cluster_spec::read(store, base, &boot.instance_group_name).await?;
        derivation::derive(files, args, boot, facts, Some(&pinned), &HashSource::known(), store).await
    };
    match derived.await {
        Ok((derivation, derived)) => match derived.prove(&boot.nodeup_config_hash) {
            Proof::Proven if derived.problems.is_empty() => {
                log::debug!("the cluster spec gives the pinned nodeupconfig, byte for byte");
                return Configuration::of_derived(derivation, derived);
            }
            _ => log::warn!(
                "the cluster spec gives another configuration than the pinned {}, which is used:\n{}",
                pinned.file.url,
                indented(&derivation.differences(&derived, Some(&pinned)))
            ),
        },
        Err(error) => log::warn!(
            "the cluster spec could not be held against the pinned {}: {}",
            pinned.file.url,
            crate::output::error_text(&error)
        ),
    }
    Configuration::of_pinned(pinned)
}

/// The derived configuration, whatever is pinned, unless the user wants it proven.
async fn derived(
    store: &Store,
    base: &str,
    args: &SpecArgs,
    boot: &BootConfig,
    facts: &Facts,
    pinned: Option<Pinned>,
    hashes: HashSource,
) -> Result<Configuration> {
    let files = cluster_spec::read(store, base, &boot.instance_group_name).await?;
    let (derivation, derived) =
        derivation::derive(files, args, boot, facts, pinned.as_ref(), &hashes, store).await?;
    if !boot.nodeup_config_hash.is_empty() {
        let problem = match derived.prove(&boot.nodeup_config_hash) {
            Proof::Proven => {
                log::debug!(
                    "the configuration derived from the cluster spec is the one that the user-data pins"
                );
                return Ok(Configuration::of_derived(derivation, derived));
            }
            Proof::Unhashed(urls) => format!(
                "whether the cluster spec gives the configuration that the user-data pins cannot be told, because \
                 nobody told the hashes of these downloads (give them with --asset-hashes):\n{}",
                indented(&urls)
            ),
            Proof::Differs(actual) => format!(
                "the cluster spec gives another configuration than the user-data pins: its hash is {actual}, but \
                 NodeupConfigHash is {}:\n{}",
                boot.nodeup_config_hash,
                indented(&derivation.differences(&derived, pinned.as_ref()))
            ),
        };
        match args.on_hash_mismatch {
            OnHashMismatch::Refuse => return Err(WrongConfiguration(problem).into()),
            OnHashMismatch::Warn => {
                log::warn!("{problem}\nit is used all the same (--on-hash-mismatch warn)")
            }
        }
    }
    Ok(Configuration::of_derived(derivation, derived))
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// A worker's nodeupconfig leaves out the authority that its boot config brings. Whatever else came over the network
/// does not change whom it trusts.
pub(crate) fn trust_the_boot_configs_authority(boot: &BootConfig, config: &mut NodeupConfig) {
    if let Some(server) = &boot.config_server
        && !server.ca_certificates.is_empty()
    {
        config.cas.insert("kubernetes-ca".into(), server.ca_certificates.clone());
    }
}

/// The node of a machine that asks kops-controller: it has no keysets, and the secrets that it is given.
async fn served(store: &Store, args: &SpecArgs, boot: BootConfig, facts: Facts) -> Result<NodeSpec> {
    let kops_controller =
        KopsController::of(&boot, None, &facts, store.retries().deadline).for_node_at(&args.node_root);
    let config_server::Served { pinned, secrets } = config_server::read(&kops_controller, &boot).await?;
    let mut spec = NodeSpec::of(boot, facts, Configuration::of_pinned(pinned));
    for name in spec.inputs.wanted_secrets() {
        if let Some(secret) = secrets.get(&name) {
            spec.keep_secret(name, secret.clone());
        }
    }
    for path in spec.inputs.wanted_manifests() {
        if !path.contains("://") {
            return Err(WrongConfiguration(format!(
                "this node is to run the manifest {path} of the state store, which it does not read: kops-controller \
                 serves no manifests; give it the cluster's folder in the store with --config-base"
            ))
            .into());
        }
        spec.read_manifest(store, path.clone(), path).await?;
    }
    Ok(spec)
}

impl NodeSpec {
    /// Without what the configuration refers to.
    fn of(boot: BootConfig, facts: Facts, configuration: Configuration) -> NodeSpec {
        let Configuration { mut config, problems, origin } = configuration;
        trust_the_boot_configs_authority(&boot, &mut config);
        let inputs = Inputs {
            boot,
            config,
            keysets: BTreeMap::new(),
            secret_names: BTreeSet::new(),
            manifests: BTreeMap::new(),
            facts,
        };
        NodeSpec { inputs, secrets: BTreeMap::new(), problems, origin }
    }

    fn keep_secret(&mut self, name: String, secret: Secret) {
        self.inputs.secret_names.insert(name.clone());
        self.secrets.insert(name, secret);
    }

    async fn read_manifest(&mut self, store: &Store, path: String, url: String) -> Result<()> {
        let manifest = store.read(&url).await.with_context(|| format!("reading manifest {path}"))?;
        let manifest =
            String::from_utf8(manifest).map_err(|_| WrongConfiguration(format!("{url} is not text")))?;
        self.inputs.manifests.insert(path, manifest);
        Ok(())
    }
}

/// Reads what the configuration refers to: keysets, secrets and manifests.
async fn complete(
    store: &Store,
    base: &str,
    boot: BootConfig,
    facts: Facts,
    configuration: Configuration,
) -> Result<NodeSpec> {
    let mut spec = NodeSpec::of(boot, facts, configuration);
    let (keypairs, secrets) = match &spec.inputs.config.config_store {
        Some(config_store) => (config_store.keypairs.clone(), config_store.secrets.clone()),
        None => Default::default(),
    };
    let files = StoreFiles::new(store, base, &keypairs, &secrets);
    for name in spec.inputs.wanted_keysets() {
        let keyset = match spec.origin.keyset(&name) {
            Some(keyset) => Some(keyset.clone()),
            None => files.keyset(&name).await?,
        };
        if let Some(keyset) = keyset {
            spec.inputs.keysets.insert(name, keyset);
        }
    }
    for name in spec.inputs.wanted_secrets() {
        let secret = match spec.origin.secret(&name) {
            Some(secret) => Some(secret.clone()),
            None => files.secret(&name).await?,
        };
        if let Some(secret) = secret {
            spec.keep_secret(name, secret);
        }
    }
    for path in spec.inputs.wanted_manifests() {
        let url = if path.contains("://") { path.clone() } else { format!("{base}/{path}") };
        spec.read_manifest(store, path, url).await?;
    }
    Ok(spec)
}

impl Origin {
    /// A keyset that the derivation has read already.
    fn keyset(&self, name: &str) -> Option<&Keyset> {
        match self {
            Origin::ClusterSpec(derivation) => derivation.files.keysets.get(name),
            Origin::NodeupConfig(_) => None,
        }
    }

    /// A secret that the derivation has read already.
    fn secret(&self, name: &str) -> Option<&Secret> {
        match self {
            Origin::ClusterSpec(derivation) => derivation.files.secrets.get(name),
            Origin::NodeupConfig(_) => None,
        }
    }

    /// The hashes of downloads that were told to derive it, by URL.
    pub(crate) fn known_hashes(&self) -> BTreeMap<String, String> {
        match self {
            Origin::ClusterSpec(derivation) => derivation.known_hashes(),
            Origin::NodeupConfig(_) => BTreeMap::new(),
        }
    }

    /// The files.
    pub(crate) fn files(&self) -> Vec<StoreFile> {
        match self {
            Origin::ClusterSpec(derivation) => {
                vec![derivation.files.cluster_file.clone(), derivation.files.group_file.clone()]
            }
            Origin::NodeupConfig(file) => vec![file.clone()],
        }
    }
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
