//! Steps 1 to 3 of node mode: boot config, facts, store.

use std::path::Path;

use anyhow::Result;
use kops_agent_cloud::{self as cloud, WantedFacts};
use kops_agent_host::Unfinished;
use kops_agent_plan::following::Followed;
use kops_agent_source::asset_hashes::HashSource;
use kops_agent_source::{self as source, Before, NodeSpec, boot_config};
use kops_agent_spec::BootConfig;
use kops_agent_spec::facts::Facts;
use kops_agent_store::Store;

use super::options::NodeOptions;
use super::{facts, kops_version, machine, redaction, remembered};

/// Reads all inputs of the node's configuration, then the cloud facts that this node needs.
pub async fn read(
    store: &Store,
    options: &NodeOptions,
    hashes: HashSource,
    before: &Before,
) -> Result<NodeSpec> {
    let user_data = boot_config(&options.source.conf, &options.store).await?;
    let facts = facts::given(options.facts.as_deref(), &user_data).await?;
    let followed = followed(&options.source.node_root, &facts)?;
    let follow = &options.source.follow;
    let boot = Followed::in_effect(followed.as_ref(), &user_data, follow).clone();
    let mut spec = read_of(store, options, boot.clone(), facts, hashes, before).await?;
    let (after, config_hash) = (spec.inputs.boot.clone(), spec.config_hash.as_str());
    spec.followed = Followed::after(followed.as_ref(), &user_data, follow, after, config_hash)?;
    let current = &spec.inputs.boot.nodeup_config_hash;
    if boot.nodeup_config_hash != *current {
        log::info!(
            "the current configuration of the instance group {} is {current}; this node has {}",
            boot.instance_group_name,
            boot.nodeup_config_hash
        );
    }
    Ok(spec)
}

/// The boot config that this machine follows instead of the boot config in its user-data. It comes from an unfinished
/// change, or else from the last applied state.
pub fn followed(root: &Path, facts: &Facts) -> Result<Option<Followed>> {
    if !machine::has_record(root) {
        return Ok(None);
    }
    let host = machine::open(root)?;
    let state = match host.unfinished_change()? {
        Some(Unfinished { state: Some(state) }) => Some(state),
        _ => host.applied()?,
    };
    // A state that was applied to a different machine is ignored. It exists if this machine's image was made from the
    // disk of that machine.
    let state = state.filter(|state| state.machine == facts.machine());
    Ok(state.and_then(|state| state.followed))
}

/// Like [`read`], with a boot config and facts that are already known.
pub async fn read_of(
    store: &Store,
    options: &NodeOptions,
    boot: BootConfig,
    facts: Facts,
    hashes: HashSource,
    before: &Before,
) -> Result<NodeSpec> {
    let left_by = |facts: &Facts| machine::left_by(&options.source.node_root, facts);
    let mut spec = source::read(store, &options.source, boot, facts, hashes, before, left_by).await?;
    // If neither the store nor kops-controller names the kOps version, files of this machine may name it.
    if spec.inputs.kops_version.is_none() {
        spec.inputs.kops_version = kops_version::find(&options.source, &spec.inputs.boot);
    }
    spec.inputs.archives = remembered::archives(&options.source.node_root);
    if options.facts.is_none() {
        let cloud = cloud::for_provider(spec.inputs.boot.cloud_provider);
        let wanted = WantedFacts {
            instance_type: spec.inputs.wants_instance_type(),
            address: spec.inputs.wants_address(),
        };
        let remembered = remembered::read(&options.source.node_root);
        cloud.complete(&mut spec.inputs.facts, wanted, &remembered).await?;
    }
    redaction::learn(&spec);
    Ok(spec)
}

/// Like [`read`], but for display only: publishers are not asked for hashes.
pub async fn read_to_show(store: &Store, options: &NodeOptions) -> Result<NodeSpec> {
    read(store, options, HashSource::offline(), &Before::default()).await
}
