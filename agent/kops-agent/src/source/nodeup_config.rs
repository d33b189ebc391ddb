//! The node's configuration as kOps wrote it for the instance group: `igconfig/<role>/<group>/nodeupconfig.yaml`.

use anyhow::Result;
use kops_agent_plan::spec::{BootConfig, NodeupConfig};

use crate::store::Store;

/// Reads it, and refuses one that does not have the hash that the boot config pins.
pub(super) async fn read(store: &Store, base: &str, boot: &BootConfig) -> Result<NodeupConfig> {
    let role = boot.instance_group_role.folder();
    let url = format!("{base}/igconfig/{role}/{}/nodeupconfig.yaml", boot.instance_group_name);
    let bytes = store.read(&url).await?;
    if !boot.nodeup_config_hash.is_empty() {
        NodeupConfig::verify_hash(&bytes, &boot.nodeup_config_hash, &url)?;
    }
    Ok(NodeupConfig::parse(&bytes, &url)?)
}
