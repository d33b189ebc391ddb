//! Steps 1 to 3 of node mode: boot config, facts, store.

use anyhow::Result;
use kops_agent_cloud as cloud;
use kops_agent_derivation::asset_hashes::HashSource;
use kops_agent_spec::BootConfig;
use kops_agent_spec::facts::Facts;
use kops_agent_store::Store;

use super::options::NodeOptions;
use super::{facts, remembered};
use crate::known;
use crate::source::{self, Before, NodeSpec, boot_config};

/// Reads everything that decides a node, then the cloud facts that this node needs.
pub async fn read(
    store: &Store,
    options: &NodeOptions,
    hashes: HashSource,
    before: &Before,
) -> Result<NodeSpec> {
    let boot = boot_config(&options.source.conf, &options.store).await?;
    let facts = facts::given(options.facts.as_deref(), &boot).await?;
    read_of(store, options, boot, facts, hashes, before).await
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
    let mut spec = source::read(store, &options.source, boot, facts, hashes, before).await?;
    spec.inputs.archives = remembered::archives(&options.source.node_root);
    if options.facts.is_none() {
        let cloud = cloud::of(spec.inputs.boot.cloud_provider);
        cloud.complete(&mut spec.inputs, &remembered::read(&options.source.node_root)).await?;
    }
    known::learn(&spec);
    Ok(spec)
}

/// Like [`read`], for display only: it asks no publisher for hashes.
pub async fn read_to_show(store: &Store, options: &NodeOptions) -> Result<NodeSpec> {
    read(store, options, HashSource::known(), &Before::default()).await
}
