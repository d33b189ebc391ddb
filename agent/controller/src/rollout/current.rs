//! The current configurations of groups, as `kops update cluster --yes` wrote them last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use kops_agent_cluster::bootstrap::node_config::nodeup_config_file;
use kops_agent_cluster::fleet::authorities_digest;
use kops_agent_cluster::rollout::Rank;
use kops_agent_plan::resolve::KUBERNETES_CA;
use kops_agent_process::output::error_text;
use kops_agent_source::cluster_files;
use kops_agent_spec::{InstanceGroupRole, NodeupConfig};
use kops_agent_store::{Found, Store, StoreError};
use tokio::time::timeout;

/// The hash of each group's current configuration, or why it is not known.
type Hashes = BTreeMap<String, Result<String, String>>;

/// Timeout of reading one configuration.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A group's current configuration.
struct Config {
    hash: String,
    /// Whether it has the authorities of the cluster. The boot config has them if it names servers that give configurations.
    has_authorities: bool,
}

impl Config {
    fn new(text: &[u8], url: &str) -> Config {
        let config = NodeupConfig::parse(text, url);
        let has_authorities = config.is_ok_and(|config| config.cas.contains_key(KUBERNETES_CA));
        Config { hash: NodeupConfig::hash(text), has_authorities }
    }
}

pub(super) struct Current {
    store: Arc<Store>,
    config_base: String,
}

impl Current {
    /// `config_base` is the cluster's folder in the store.
    pub(super) fn new(store: Arc<Store>, config_base: &str) -> Current {
        Current { store, config_base: config_base.trim_end_matches('/').to_owned() }
    }

    /// The hash of each group's current configuration, or why it is not known. Also the digest of the authorities that new machines
    /// of a group trust, if its configuration does not have them. If these cannot be read, the hash counts as not known: otherwise a
    /// rollout would call nodes done that trust other authorities.
    pub(super) async fn read(&self, groups: BTreeMap<String, Rank>) -> (Hashes, BTreeMap<String, String>) {
        // Reboots depend on no configuration, so they must not wait for the store.
        if groups.is_empty() {
            return (Hashes::new(), BTreeMap::new());
        }
        let keyset = self.authorities();
        let configs = groups.into_iter().map(|(group, rank)| async move {
            let config = self.config(&group, rank).await;
            (group, config)
        });
        let (keyset, configs) = join(keyset, join_all(configs)).await;
        let (mut hashes, mut authorities) = (Hashes::new(), BTreeMap::new());
        for (group, config) in configs {
            let hash = match (config, &keyset) {
                (Ok(config), Err(problem)) if !config.has_authorities => Err(problem.clone()),
                (Ok(config), keyset) => {
                    if let (false, Ok(Some(digest))) = (config.has_authorities, keyset) {
                        authorities.insert(group.clone(), digest.clone());
                    }
                    Ok(config.hash)
                }
                (Err(problem), _) => Err(problem),
            };
            hashes.insert(group, hash);
        }
        (hashes, authorities)
    }

    /// The digest of the authorities in the keyset. `None` if the store has no such keyset, or this machine may not read it.
    async fn authorities(&self) -> Result<Option<String>, String> {
        let reading = cluster_files::keyset(&self.store, &self.config_base, KUBERNETES_CA);
        match timeout(TIMEOUT, reading).await {
            Ok(Ok(Found::There(keyset))) => Ok(authorities_digest(&keyset.trusted_certificates_pem())),
            Ok(Ok(Found::Absent | Found::Denied(_))) => Ok(None),
            Ok(Err(error)) => Err(error_text(&error)),
            Err(_) => Err(format!("the store does not return the keyset {KUBERNETES_CA} in time")),
        }
    }

    async fn config(&self, group: &str, rank: Rank) -> Result<Config, String> {
        let role = match rank {
            Rank::ControlPlane => InstanceGroupRole::ControlPlane,
            Rank::ApiServer => InstanceGroupRole::APIServer,
            Rank::Worker => InstanceGroupRole::Node,
        };
        let file = nodeup_config_file(role, group)
            .ok_or_else(|| format!("{group:?} is not a valid name of an instance group"))?;
        let url = format!("{}/{file}", self.config_base);
        match timeout(TIMEOUT, self.store.read(&url)).await {
            Ok(Ok(text)) => Ok(Config::new(&text, &url)),
            Ok(Err(StoreError::NotFound { .. })) => Err(format!("{url} does not exist")),
            Ok(Err(error)) => Err(error_text(&error.into())),
            Err(_) => Err(format!("the store does not return {url} in time")),
        }
    }
}
