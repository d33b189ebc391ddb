//! The node's configuration as kops-controller serves it to machines that do not read the state store
//! (upstream: `getNodeConfigFromServers` in `upup/pkg/fi/nodeup/command.go`).

use std::collections::BTreeMap;

use crate::bootstrap_client::{Current, KopsController};
use crate::nodeup_config::{self, Pinned};
use anyhow::{Context, Result};
use kops_agent_cluster::bootstrap::message::ServedNodeConfig;
use kops_agent_plan::following::taken;
use kops_agent_spec::failure::{Failing, Failure};
use kops_agent_spec::kops_release::{Evidence, Told};
use kops_agent_spec::{BootConfig, Secret};

pub(crate) struct Served {
    pub pinned: Pinned,
    /// The secrets that came with the configuration, by name.
    pub secrets: BTreeMap<String, Secret>,
    /// The kOps version of the store. Only kops-agent's own server gives it.
    pub kops_version: Option<Told>,
}

/// Requests the configuration from kops-controller. Rejects a configuration whose hash is not the hash that the boot
/// config pins.
pub(crate) async fn read(kops_controller: &KopsController, boot: &BootConfig) -> Result<Served> {
    let (server, served) =
        kops_controller.node_config().await.context("getting this machine's configuration")?;
    pinned(&server, served, boot)
}

/// Requests the group's current configuration, and the group's boot config, which pins the configuration. Returns the
/// configuration, and a copy of `boot` with the values that a node takes from the group's boot config. Fails if the
/// group's boot config is for another node, trusts none of this node's authorities, or pins no configuration.
pub(crate) async fn current(
    kops_controller: &KopsController,
    boot: &BootConfig,
) -> Result<(BootConfig, Served)> {
    let (server, Current { boot_config, config }) = kops_controller
        .current()
        .await
        .context("getting the current configuration of this machine's group")?;
    let served = BootConfig::parse(boot_config.as_bytes(), &format!("bootConfig of {server}"))?;
    let boot = taken(boot, &served)
        .map_err(|refused| Failure::new(refused.kind(), format!("{server}: {refused}")))?;
    let served = pinned(&server, config, &boot)?;
    Ok((boot, served))
}

fn pinned(server: &str, served: ServedNodeConfig, boot: &BootConfig) -> Result<Served> {
    let url = format!("nodeupConfig of {server}");
    let pinned = nodeup_config::parse(served.nodeup_config.into_bytes(), boot, url)?;
    let secrets = served.node_secrets.into_iter().map(|(name, bytes)| (name, Secret::new(bytes.0))).collect();
    let told = |version| Told { version, by: Evidence::KopsController };
    let kops_version = Some(served.kops_version).filter(|version| !version.is_empty()).map(told);
    Ok(Served { pinned, secrets, kops_version })
}
