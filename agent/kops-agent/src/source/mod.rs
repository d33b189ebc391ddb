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
use kops_agent_host::{Applied, Decided, Host, Sources};
use kops_agent_plan::derive;
use kops_agent_plan::facts::Facts;
use kops_agent_plan::resolve::{Inputs, Problems};
use kops_agent_plan::spec::{BootConfig, Keyset, NodeupConfig, Secret};

use crate::bootstrap_client::KopsController;
use crate::cli::{ConfigFrom, OnHashMismatch, SpecArgs};
use crate::exit::WrongConfiguration;
use crate::hashes::HashSource;
use crate::store::{Found, Store, StoreError};

use cluster_spec::StoreFile;
use derivation::{Derivation, Derived, Proof, SpecDiffers};
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
    /// What of the store this machine may not read now.
    pub denied: Denied,
    /// Where its keys and secrets are read.
    pub sources: Sources,
}

/// What of the store a machine may not read now, though it may be there: by name, and why.
#[derive(Clone, Debug, Default)]
pub struct Denied {
    /// Keysets.
    pub keysets: BTreeMap<String, String>,
    /// Secrets.
    pub secrets: BTreeMap<String, String>,
    /// Files that the configuration was derived without, by URL.
    pub files: BTreeSet<String>,
}

/// What an earlier run has made of the store's secrets, which tells what a denial may not take away.
#[derive(Clone, Debug, Default)]
pub enum Before {
    /// There was none on this machine, and no other program has made it a node.
    #[default]
    Nothing,
    /// What has gone into its files is known, whether or not the last run came to its end.
    Known(Decided),
    /// There was one, or another program's, and what it has used is not known.
    Unclear,
}

impl Before {
    /// As the host has it.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn on(host: &Host) -> Result<Before> {
        let applied = host.applied()?;
        let secrets =
            |applied: Applied| applied.secrets().into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
        Ok(match (host.record()?.decided, applied.map(secrets)) {
            (Some(mut decided), secrets) => {
                decided.secrets.extend(secrets.unwrap_or_default());
                Before::Known(decided)
            }
            (None, Some(secrets)) => Before::Known(Decided { secrets, ..Decided::default() }),
            (None, None) => match host.is_no_node_yet() {
                Ok(true) => Before::Nothing,
                Ok(false) => Before::Unclear,
                Err(error) => {
                    log::debug!("whether this machine has been a node cannot be told: {error}");
                    Before::Unclear
                }
            },
        })
    }

    /// Whether nothing that is here can have been made of this file of the store.
    fn is_without(&self, url: &str) -> bool {
        match self {
            Before::Nothing => true,
            Before::Known(decided) => decided.without.contains(url),
            Before::Unclear => false,
        }
    }
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
    before: &Before,
) -> Result<NodeSpec> {
    let has_store = args.config_base.is_some() || boot.config_base.is_some();
    if !has_store && args.config_from != ConfigFrom::ClusterSpec && config_server::is_to_be_asked(&boot) {
        return served(store, args, boot, facts).await;
    }
    let base = config_base(args, &boot)?;
    if args.config_from == ConfigFrom::NodeupConfig {
        let pinned = nodeup_config::read(store, &base, &boot).await?;
        return complete(store, &base, boot, facts, Configuration::of_pinned(pinned), before).await;
    }
    let pinned = nodeup_config::pinned(store, &base, &boot).await?;
    let mut configuration = match (args.config_from, pinned) {
        (ConfigFrom::Auto, Some(pinned)) => {
            pinned_and_proven(store, &base, args, &boot, &facts, pinned).await
        }
        (_, pinned) => derived(store, &base, args, &boot, &facts, pinned, hashes).await?,
    };
    let mut without = BTreeSet::new();
    for why in configuration.denied.drain(..) {
        match &why {
            StoreError::Forbidden { url } if before.is_without(url) => {
                log::warn!("this node is decided as if the cluster had no such file: {why}");
                without.insert(url.clone());
            }
            // It may well be there, and have been read by an earlier run.
            _ => return Err(why.into()),
        }
    }
    let mut spec = complete(store, &base, boot, facts, configuration, before).await?;
    spec.denied.files = without;
    Ok(spec)
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
    /// Files that it was derived without, because this machine may not read them.
    denied: Vec<StoreError>,
}

impl Configuration {
    fn of_pinned(pinned: Pinned) -> Configuration {
        Configuration {
            config: pinned.config,
            problems: Problems::default(),
            origin: Origin::NodeupConfig(pinned.file),
            denied: Vec::new(),
        }
    }

    fn of_proven(derivation: Derivation, derived: Derived) -> Configuration {
        Configuration::of_derived(derivation.proven(), derived)
    }

    fn of_derived(derivation: Derivation, derived: Derived) -> Configuration {
        Configuration {
            config: derived.config,
            problems: derived.problems,
            origin: Origin::ClusterSpec(Box::new(derivation)),
            denied: Vec::new(),
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
                return Configuration::of_proven(derivation, derived);
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
    let mut files = cluster_spec::read(store, base, &boot.instance_group_name).await?;
    let denied = std::mem::take(&mut files.denied);
    let (derivation, derived) =
        derivation::derive(files, args, boot, facts, pinned.as_ref(), &hashes, store).await?;
    if !boot.nodeup_config_hash.is_empty() {
        let problem = match derived.prove(&boot.nodeup_config_hash) {
            Proof::Proven => {
                log::debug!(
                    "the configuration derived from the cluster spec is the one that the user-data pins"
                );
                // Whatever may not be read makes no difference to it.
                return Ok(Configuration::of_proven(derivation, derived));
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
            OnHashMismatch::Refuse => return Err(refused(problem, &derived, &boot.nodeup_config_hash)),
            OnHashMismatch::Warn => {
                log::warn!("{problem}\nit is used all the same (--on-hash-mismatch warn)")
            }
        }
    }
    Ok(Configuration { denied, ..Configuration::of_derived(derivation, derived) })
}

/// The error for a derived configuration that may not be used in the place of the pinned one.
fn refused(problem: String, derived: &Derived, nodeup_config_hash: &str) -> anyhow::Error {
    match derived.prove(nodeup_config_hash) {
        Proof::Differs(actual) if derived.problems.is_empty() => {
            SpecDiffers { problem, expected: nodeup_config_hash.to_owned(), actual }.into()
        }
        _ => WrongConfiguration(problem).into(),
    }
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
        let Configuration { mut config, problems, origin, .. } = configuration;
        trust_the_boot_configs_authority(&boot, &mut config);
        let inputs = Inputs {
            boot,
            config,
            keysets: BTreeMap::new(),
            secret_names: BTreeSet::new(),
            manifests: BTreeMap::new(),
            facts,
        };
        let (denied, sources) = (Denied::default(), Sources::default());
        NodeSpec { inputs, secrets: BTreeMap::new(), problems, origin, denied, sources }
    }

    /// Has what an earlier run has made of a secret stay, and leaves out what none has made yet.
    ///
    /// # Errors
    /// If it is not known whether an earlier run has made anything of it.
    fn deny_secret(&mut self, name: String, why: StoreError, before: &Before) -> Result<()> {
        match before {
            Before::Unclear => return Err(why.into()),
            Before::Known(decided) if decided.secrets.contains(&name) => {
                self.inputs.secret_names.insert(name.clone());
            }
            Before::Nothing | Before::Known(_) => {
                log::warn!("the secret {name} is left out, as if the cluster had none: {why}");
            }
        }
        self.denied.secrets.insert(name, why.to_string());
        Ok(())
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
    before: &Before,
) -> Result<NodeSpec> {
    let mut spec = NodeSpec::of(boot, facts, configuration);
    let (keypairs, secrets) = match &spec.inputs.config.config_store {
        Some(config_store) => (config_store.keypairs.clone(), config_store.secrets.clone()),
        None => Default::default(),
    };
    let files = StoreFiles::new(store, base, &keypairs, &secrets);
    spec.sources = files.sources();
    if let Origin::ClusterSpec(derivation) = &spec.origin {
        spec.denied.keysets.extend(derivation.files.denied_keysets.clone());
    }
    for name in spec.inputs.wanted_keysets() {
        let keyset = match spec.origin.keyset(&name) {
            Some(keyset) => Found::There(keyset.clone()),
            None => files.keyset(&name).await?,
        };
        match keyset {
            Found::There(keyset) => drop(spec.inputs.keysets.insert(name, keyset)),
            Found::Absent => {}
            Found::Denied(why) => drop(spec.denied.keysets.insert(name, why.to_string())),
        }
    }
    for name in spec.inputs.wanted_secrets() {
        let secret = match spec.origin.secret(&name) {
            Some(secret) => Found::There(secret.clone()),
            None => files.secret(&name).await?,
        };
        match secret {
            Found::There(secret) => spec.keep_secret(name, secret),
            Found::Absent => {}
            Found::Denied(why) => spec.deny_secret(name, why, before)?,
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

    /// Whether the cluster spec gives the configuration that the user-data pins, byte for byte.
    pub(crate) fn is_proven(&self) -> bool {
        matches!(self, Origin::ClusterSpec(derivation) if derivation.is_proven)
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

    /// The folders that were read at an earlier time.
    pub(crate) fn of(store: &'a Store, sources: &Sources) -> StoreFiles<'a> {
        StoreFiles { store, keypairs: sources.keysets.clone(), secrets: sources.secrets.clone() }
    }

    /// A keyset. Workers usually may not read any.
    pub(crate) async fn keyset(&self, id: &str) -> Result<Found<Keyset>> {
        let mut denied = None;
        for folder in [Some(id), derive::former_keyset_name(id)].into_iter().flatten() {
            let url = format!("{}/private/{folder}/keyset.yaml", self.keypairs);
            match self.store.look(&url).await?.try_map(|text| Keyset::parse(&text, &url))? {
                Found::There(keyset) => return Ok(Found::There(keyset)),
                Found::Absent => {}
                // That of its present name is what people know.
                Found::Denied(why) => denied = denied.or(Some(why)),
            }
        }
        Ok(denied.map_or(Found::Absent, Found::Denied))
    }

    /// A secret.
    pub(crate) async fn secret(&self, id: &str) -> Result<Found<Secret>> {
        let url = format!("{}/{id}", self.secrets);
        Ok(self.store.look(&url).await?.try_map(|text| Secret::parse(&text, &url))?)
    }

    /// The folders, for a later run.
    pub(crate) fn sources(&self) -> Sources {
        Sources { keysets: self.keypairs.clone(), secrets: self.secrets.clone() }
    }
}
