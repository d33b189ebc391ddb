//! Derives the boot config of a group, for a node that follows its group. `kops update cluster` puts the same boot
//! config into the user-data of the group's new machines.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kops_agent_cloud::verify::Refusal;
use kops_agent_plan::derive;
use kops_agent_plan::resolve::KUBERNETES_CA;
use kops_agent_process::output::error_text;
use kops_agent_source::{Derivation, cluster_files};
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::{BootConfig, NodeupConfig, go_yaml};
use kops_agent_store::Store;
use parking_lot::Mutex as StdMutex;
use tokio::time::timeout;

use super::cached::Cached;
use super::derived_configs::late;

pub(super) struct BootConfigs {
    store: Arc<Store>,
    config_base: String,
    /// Timeout of a derivation, which reads the store.
    within: Duration,
    /// The TTL of a derived boot config.
    good_for: Duration,
    /// The boot configs of groups, by group name. Only a verified machine adds its group.
    groups: StdMutex<BTreeMap<String, Arc<Cached<BootConfig>>>>,
}

impl BootConfigs {
    pub(super) fn new(
        store: Arc<Store>,
        config_base: &str,
        within: Duration,
        good_for: Duration,
    ) -> BootConfigs {
        let config_base = config_base.to_owned();
        BootConfigs { store, config_base, within, good_for, groups: StdMutex::default() }
    }

    /// Returns the text of the group's boot config. The boot config pins `nodeup_config`, which is the text of the group's
    /// `nodeupconfig.yaml`. The boot config has no addresses of load balancers, because the store does not have them.
    pub(super) async fn of_group(&self, name: &str, nodeup_config: &str) -> Result<String, Refusal> {
        let group = self.groups.lock().entry(name.to_owned()).or_default().clone();
        // The future may be too large for the stack of a thread, so it is boxed.
        let deriving = group.get(self.good_for, Box::pin(self.derive(name)));
        let derived = timeout(self.within, deriving).await.unwrap_or_else(|_| Err(late(self.within)));
        let mut boot = derived.map_err(|error| {
            let problem =
                format!("the boot config of the group {name} cannot be derived: {}", error_text(&error));
            Refusal::unavailable("BootConfigUnavailable", problem)
        })?;
        boot.nodeup_config_hash = NodeupConfig::hash(nodeup_config.as_bytes());
        Ok(go_yaml::to_string(&boot))
    }

    async fn derive(&self, name: &str) -> Result<BootConfig> {
        let files = cluster_files::read(&self.store, &self.config_base, name).await?;
        if let Some(denied) = files.denied_keysets.get(KUBERNETES_CA) {
            let problem = format!("the keyset {KUBERNETES_CA} cannot be read: {denied}");
            return Err(Failure::new(Kind::StoreForbidden, problem).into());
        }
        let derivation = Derivation::of_group(files);
        derive::boot_config(&derivation.inputs(), "").context("deriving the boot config from the spec")
    }
}
