//! Step 3 of node mode: from the boot config to everything that decides the node.
//!
//! Three sources give the same result. From the completed Cluster and the InstanceGroup, [`crate::derivation`]
//! derives the node's configuration. This module also reads the configuration that kOps wrote to the store. If the
//! boot config pins the written configuration, both are compared. Equal bytes prove the whole derivation. If the
//! bytes differ, the pinned configuration wins if it can be read, because kOps vouched for it. On a machine that does
//! not read the store, [`config_server`] asks kops-controller for the configuration that kOps wrote.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use kops_agent_cloud as cloud;
use kops_agent_plan::derive;
use kops_agent_plan::resolve::Problems;
use kops_agent_spec::facts::Facts;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::kops_release::Told;
use kops_agent_spec::urls::shown_url;
use kops_agent_spec::{BootConfig, NodeupConfig};
use kops_agent_store::{Found, Store, StoreError};

use tokio::join;

use crate::asset_hashes::HashSource;
use crate::before::Before;
use crate::bootstrap_client::{KopsController, LeftBy};
use crate::configuration::{Configuration, derived, pinned_and_proven};
use crate::derivation::{Derivation, Derived};
use crate::failure::kind_of;
use crate::node_spec::{NodeSpec, manifest};
use crate::nodeup_config::{self, Pinned};
use crate::options::{ConfigFrom, SourceOptions, StoreOptions};
use crate::origin::Origin;
use crate::store_files::{StoreFiles, each};
use crate::{cluster_files, config_server};

/// The boot config at `--conf`: a path, a URL of any store, or an item of the machine's metadata, as for nodeup
/// (upstream: `ReadFile` in util/pkg/vfs/context.go).
pub async fn boot_config(conf: &Path, options: &StoreOptions) -> Result<BootConfig> {
    let url = conf.to_str().filter(|conf| conf.contains("://"));
    let reading = || match url {
        Some(url) => format!("reading the boot config {}", shown_url(url)),
        None => format!("reading the boot config {}", conf.display()),
    };
    let bytes = match url.map(|url| url.strip_prefix("file://").ok_or(url)) {
        None => std::fs::read(conf).with_context(reading)?,
        Some(Ok(path)) => std::fs::read(path).with_context(reading)?,
        Some(Err(url)) => {
            if url.starts_with(cloud::METADATA_SCHEME) {
                let item = cloud::read_metadata(url, options.retries()).await.with_context(reading)?;
                return Ok(BootConfig::from_user_data(item.as_bytes())?);
            }
            if url.starts_with("http://") {
                log::warn!(
                    "any hop on the way can change the boot config {}, and so the configuration of this \
                     node; use an https:// URL",
                    shown_url(url)
                );
            }
            options.open()?.reading_in_clear().read(url).await.with_context(reading)?
        }
    };
    Ok(BootConfig::from_user_data(&bytes)?)
}

/// Reads all inputs of the node that this boot config describes. `left_by` returns which machine wrote the node files on this disk. It is
/// called only if the machine requests its configuration from kops-controller.
pub async fn read(
    store: &Store,
    options: &SourceOptions,
    boot: BootConfig,
    facts: Facts,
    hashes: HashSource,
    before: &Before,
    left_by: impl FnOnce(&Facts) -> LeftBy,
) -> Result<NodeSpec> {
    let has_store = options.config_base.is_some() || boot.store_base().is_some();
    if !has_store && options.config_from != ConfigFrom::ClusterSpec && boot.asks_server() {
        let left_by = left_by(&facts);
        return served(store, options, boot, facts, left_by).await;
    }
    let base = options.config_base(&boot)?;
    let (boot, written) = match options.follow.asks_for_current() && !boot.nodeup_config_hash.is_empty() {
        true => current(store, &base, boot).await.map(|(boot, written)| (boot, Some(written)))?,
        false => (boot, None),
    };
    if options.follow.asks_for_current() && boot.asks_server() {
        log::warn!(
            "this machine keeps the authorities that it trusts, because --config-base names the state store; \
             leave out --config-base to take the current authorities from kops-controller"
        );
    }
    if options.config_from == ConfigFrom::NodeupConfig {
        let pinned = match written {
            Some(written) => written,
            None => nodeup_config::read(store, &base, &boot).await?,
        };
        return complete(store, &base, boot, facts, Configuration::of_pinned(pinned), before, None).await;
    }
    let pinned = match written {
        Some(written) => Some(written),
        None => nodeup_config::pinned(store, &base, &boot).await?,
    };
    let mut configuration = match (options.config_from, pinned) {
        (ConfigFrom::Auto, Some(pinned)) => {
            pinned_and_proven(store, &base, options, &boot, &facts, pinned).await
        }
        (from, pinned) => match only_written(store, &base, &boot, from).await? {
            Some(written) => Configuration::of_pinned(written),
            None => derived(store, &base, options, &boot, &facts, pinned, hashes).await?,
        },
    };
    let mut without = BTreeSet::new();
    for why in configuration.denied.drain(..) {
        match &why {
            StoreError::Forbidden { url, .. } if before.is_without(url) => {
                log::warn!("this run continues as if this file did not exist: {why}");
                without.insert(url.clone());
            }
            // The file may exist, and an earlier run may have used it. So the run cannot continue without the file.
            _ => return Err(why.into()),
        }
    }
    let mut spec = complete(store, &base, boot, facts, configuration, before, None).await?;
    spec.denied.files = without;
    Ok(spec)
}

/// The text that replaces a manifest that kOps has not written yet.
pub(crate) const UNWRITTEN_MANIFEST: &str = "apiVersion: v1\nkind: Pod\nspec: {containers: []}\n";

/// Reads the inputs for the nodes of a group, without a particular machine. Uses the boot config that kOps would write, and empty facts.
pub async fn read_of_group(store: &Store, base: &str, group: &str) -> Result<NodeSpec> {
    let derivation = Derivation::of_group(cluster_files::read(store, base, group).await?);
    of_any_machine(store, base, derivation, Some(UNWRITTEN_MANIFEST)).await
}

/// Like [`read_of_group`], with the hashes that the derivation knows. Fails if a manifest of the group is missing, or if this machine may
/// not read a file that the group's nodes depend on.
pub async fn read_of_derivation(store: &Store, base: &str, mut derivation: Derivation) -> Result<NodeSpec> {
    cluster_files::require_kops_version(store, base).await?;
    match derivation.files.denied.pop() {
        Some(denied) => Err(denied.into()),
        None => of_any_machine(store, base, derivation, None).await,
    }
}

async fn of_any_machine(
    store: &Store,
    base: &str,
    derivation: Derivation,
    unwritten: Option<&str>,
) -> Result<NodeSpec> {
    let derived = derivation.derive();
    let boot = boot_config_of_group(&derivation, &derived)?;
    let configuration = Configuration::of_derived(derivation, derived);
    complete(store, base, boot, Facts::default(), configuration, &Before::default(), unwritten).await
}

/// The boot config that kOps would write for the group of this derivation.
pub(crate) fn boot_config_of_group(
    derivation: &Derivation,
    derived: &Derived,
) -> Result<BootConfig, Problems> {
    derive::boot_config(&derivation.inputs(), "").map_err(|problems| {
        let mut all = derived.problems.clone();
        all.extend(problems);
        all
    })
}

/// Reads the configuration from the copy of a store that `kops toolbox enroll` has made on a control plane. The copy is a folder of this
/// machine, and has no cluster spec. Returns `None` in three cases: the store is no such copy, the boot config pins a configuration, or the
/// user chose the source of the configuration.
async fn only_written(
    store: &Store,
    base: &str,
    boot: &BootConfig,
    from: ConfigFrom,
) -> Result<Option<Pinned>> {
    let is_on_this_machine = base.starts_with("file://") || base.starts_with('/');
    let is_pinned = !boot.nodeup_config_hash.is_empty();
    if from != ConfigFrom::Auto || is_pinned || !is_on_this_machine {
        return Ok(None);
    }
    match cluster_files::is_absent(store, base).await? {
        true => nodeup_config::written(store, base, boot).await,
        false => Ok(None),
    }
}

/// Reads the inputs of a node that requests its configuration from kops-controller. The node gets no keysets, and only the secrets that
/// kops-controller gives it.
async fn served(
    store: &Store,
    options: &SourceOptions,
    boot: BootConfig,
    facts: Facts,
    left_by: LeftBy,
) -> Result<NodeSpec> {
    let kops_controller = KopsController::new(&boot, None, &facts, store.retries().deadline)
        .for_node_at(&options.node_root)
        .with_files_left_by(left_by);
    let (boot, served) = match options.follow.asks_for_current() {
        true => config_server::current(&kops_controller, &boot).await?,
        false => {
            let served = config_server::read(&kops_controller, &boot).await?;
            (boot, served)
        }
    };
    let config_server::Served { pinned, secrets, kops_version } = served;
    let mut spec = NodeSpec::new(boot, facts, Configuration::of_pinned(pinned));
    spec.inputs.kops_version = kops_version;
    for name in spec.inputs.wanted_secrets() {
        if let Some(secret) = secrets.get(&name) {
            spec.keep_secret(name, secret.clone());
        }
    }
    for path in spec.inputs.wanted_manifests() {
        if !is_whole(&path) {
            return Err(Failure::new(Kind::NoConfigBase, format!(
                "this node must run the manifest {path} of the state store, but this node does not read the \
                 store, and kops-controller serves no manifests. Give the cluster's folder in the store with \
                 --config-base"
            ))
            .into());
        }
    }
    let manifests = each(spec.inputs.wanted_manifests(), |path| manifest(store, path.clone(), path)).await?;
    spec.inputs.manifests.extend(manifests);
    Ok(spec)
}

/// The configuration that kOps wrote for the group most recently, and a copy of the boot config that pins this configuration.
async fn current(store: &Store, base: &str, boot: BootConfig) -> Result<(BootConfig, Pinned)> {
    let unpinned = BootConfig { nodeup_config_hash: String::new(), ..boot };
    let Some(written) = nodeup_config::written(store, base, &unpinned).await? else {
        return Err(Failure::new(Kind::FollowRefused, format!(
            "cannot follow: the state store has no nodeupconfig.yaml of the instance group {} below {base}, or this machine \
             may not read it",
            unpinned.instance_group_name
        ))
        .into());
    };
    Ok((BootConfig { nodeup_config_hash: NodeupConfig::hash(&written.file.text), ..unpinned }, written))
}

/// Whether the location of a manifest is a URL or an absolute path. `kops toolbox enroll` copies the manifests of a control plane to
/// absolute paths on the machine (upstream: `remapFile` in `pkg/commands/toolbox_enroll.go`).
fn is_whole(manifest: &str) -> bool {
    manifest.contains("://") || manifest.starts_with('/')
}

fn is_not_found(error: &anyhow::Error) -> bool {
    kind_of(error) == Kind::StoreNotFound
}

/// Reads the keysets, secrets and manifests that the configuration refers to. If `unwritten` is set, this text
/// replaces each manifest that the store lacks.
async fn complete(
    store: &Store,
    base: &str,
    boot: BootConfig,
    facts: Facts,
    configuration: Configuration,
    before: &Before,
    unwritten: Option<&str>,
) -> Result<NodeSpec> {
    let mut spec = NodeSpec::new(boot, facts, configuration);
    let (keypairs, secrets) = match &spec.inputs.config.config_store {
        Some(config_store) => (config_store.keypairs.clone(), config_store.secrets.clone()),
        None => Default::default(),
    };
    let files = StoreFiles::new(store, base, &keypairs, &secrets);
    (spec.keysets, spec.secret_files) = (files.keypairs().to_owned(), files.secrets().to_owned());
    if let Origin::ClusterSpec(derivation) = &spec.origin {
        spec.denied.keysets.extend(derivation.files.denied_keysets.clone());
    }
    let origin = &spec.origin;
    let keyset = async |name: String| {
        let found = match origin.keyset(&name) {
            Some(keyset) => Found::There(keyset.clone()),
            None => files.keyset(&name).await?,
        };
        Ok((name, found))
    };
    let secret = async |name: String| {
        let found = match origin.secret(&name) {
            Some(secret) => Found::There(secret.clone()),
            None => files.secret(&name).await?,
        };
        Ok((name, found))
    };
    let of_store = async |path: String| {
        let url = if is_whole(&path) { path.clone() } else { format!("{base}/{path}") };
        match (manifest(store, path.clone(), url).await, unwritten) {
            (Err(error), Some(unwritten)) if is_not_found(&error) => Ok((path, unwritten.to_owned())),
            (read, _) => read,
        }
    };
    let (keysets, secrets, manifests, version) = join!(
        each(spec.inputs.wanted_keysets(), keyset),
        each(spec.inputs.wanted_secrets(), secret),
        each(spec.inputs.wanted_manifests(), of_store),
        cluster_files::kops_version(store, base),
    );
    // The version is optional, because the IAM roles of many workers may not read the file with the version.
    spec.inputs.kops_version = version?.map(Told::by_version_file);
    for (name, keyset) in keysets? {
        match keyset {
            Found::There(keyset) => drop(spec.inputs.keysets.insert(name, keyset)),
            Found::Absent => {}
            Found::Denied(why) => drop(spec.denied.keysets.insert(name, why.to_string())),
        }
    }
    for (name, secret) in secrets? {
        match secret {
            Found::There(secret) => spec.keep_secret(name, secret),
            Found::Absent => {}
            Found::Denied(why) => spec.deny_secret(name, why, before)?,
        }
    }
    spec.inputs.manifests.extend(manifests?);
    Ok(spec)
}
