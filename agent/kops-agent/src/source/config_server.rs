//! The node's configuration as kops-controller serves it to machines that do not read the state store
//! (upstream: `getNodeConfigFromServers` in `upup/pkg/fi/nodeup/command.go`).

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kops_agent_bootstrap_client::KopsController;
use kops_agent_derivation::nodeup_config::{self, Pinned};
use kops_agent_spec::{BootConfig, Secret};

pub(super) struct Served {
    pub(super) pinned: Pinned,
    /// The secrets that came with it, by name.
    pub(super) secrets: BTreeMap<String, Secret>,
}

/// Requests the configuration from kops-controller, and rejects one without the hash that the boot config pins.
///
/// # Errors
/// No server gives a configuration, or it has another hash or is malformed.
pub(super) async fn read(kops_controller: &KopsController, boot: &BootConfig) -> Result<Served> {
    let (server, served) =
        kops_controller.node_config().await.context("getting this machine's configuration")?;
    let url = format!("nodeupConfig of {server}");
    let pinned = nodeup_config::parse(served.nodeup_config.into_bytes(), boot, url)?;
    let secrets = served.node_secrets.into_iter().map(|(name, bytes)| (name, Secret::of(bytes.0))).collect();
    Ok(Served { pinned, secrets })
}
