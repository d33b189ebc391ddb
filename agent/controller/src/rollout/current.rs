//! The current configurations of groups, as `kops update cluster --yes` wrote them last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kops_agent_cluster::bootstrap::node_config::nodeup_config_file;
use kops_agent_cluster::rollout::Rank;
use kops_agent_process::output::error_text;
use kops_agent_spec::{InstanceGroupRole, NodeupConfig};
use kops_agent_store::{Store, StoreError};
use tokio::time::timeout;

/// Timeout of reading one configuration.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Current {
    store: Arc<Store>,
    config_base: String,
}

impl Current {
    /// `config_base` is the cluster's folder in the store.
    pub(super) fn new(store: Arc<Store>, config_base: &str) -> Current {
        Current { store, config_base: config_base.trim_end_matches('/').to_owned() }
    }

    /// The hash of each group's current configuration, or why it is not known.
    pub(super) async fn hashes(
        &self,
        groups: BTreeMap<String, Rank>,
    ) -> BTreeMap<String, Result<String, String>> {
        let hashes = groups.into_iter().map(|(group, rank)| async move {
            let hash = self.hash(&group, rank).await;
            (group, hash)
        });
        join_all(hashes).await.into_iter().collect()
    }

    async fn hash(&self, group: &str, rank: Rank) -> Result<String, String> {
        let role = match rank {
            Rank::ControlPlane => InstanceGroupRole::ControlPlane,
            Rank::ApiServer => InstanceGroupRole::APIServer,
            Rank::Worker => InstanceGroupRole::Node,
        };
        let file = nodeup_config_file(role, group)
            .ok_or_else(|| format!("{group:?} is not a valid name of an instance group"))?;
        let url = format!("{}/{file}", self.config_base);
        match timeout(TIMEOUT, self.store.read(&url)).await {
            Ok(Ok(text)) => Ok(NodeupConfig::hash(&text)),
            Ok(Err(StoreError::NotFound { .. })) => Err(format!("{url} does not exist")),
            Ok(Err(error)) => Err(error_text(&error.into())),
            Err(_) => Err(format!("the store does not return {url} in time")),
        }
    }
}
