//! Options for the source of a node's specification.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use kops_agent_net::retry::Retries;
use kops_agent_plan::desired::BOOT_CONFIG;
use kops_agent_plan::following::Follow;
use kops_agent_spec::BootConfig;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_store::Store;

/// The path of the boot config on machines whose `/opt` is read-only, as on Container-Optimized OS.
pub const BOOT_CONFIG_OF_TOOLBOX: &str = "/var/lib/toolbox/kops/conf/kube_env.yaml";

/// The path of the boot config if `--conf` is not given.
pub fn default_conf() -> PathBuf {
    let of_toolbox = PathBuf::from(BOOT_CONFIG_OF_TOOLBOX);
    if of_toolbox.exists() { of_toolbox } else { PathBuf::from(BOOT_CONFIG) }
}

/// Where the node's configuration comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConfigFrom {
    /// If the boot config pins a nodeupconfig, the agent uses the pinned nodeupconfig, and compares it with the cluster spec. If the boot
    /// config pins none, the agent uses the cluster spec.
    #[default]
    Auto,
    /// From cluster-completed.spec and the InstanceGroup.
    ClusterSpec,
    /// From the nodeupconfig.yaml that kOps wrote for the instance group.
    NodeupConfig,
}

/// What to do with a derived configuration that differs from the pinned configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnHashMismatch {
    /// Warn, and use the derived configuration.
    #[default]
    Warn,
    Refuse,
}

/// Options that decide where a node's configuration comes from.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// The path or the URL of the boot config, or of the user-data that carries it.
    pub conf: PathBuf,
    pub config_from: ConfigFrom,
    /// The cluster's folder in the state store, instead of the boot config's ConfigBase.
    pub config_base: Option<String>,
    pub asset_hashes: Option<PathBuf>,
    pub on_hash_mismatch: OnHashMismatch,
    /// Which version of its group's configuration the node uses.
    pub follow: Follow,
    /// The root directory of the machine whose node the agent plans.
    pub node_root: PathBuf,
}

impl SourceOptions {
    /// The cluster's folder in the state store.
    pub fn config_base(&self, boot: &BootConfig) -> Result<String> {
        let base = self.config_base.as_deref().or_else(|| boot.store_base()).ok_or_else(|| {
            Failure::new(Kind::NoConfigBase, format!(
                "the boot config {} has no ConfigBase, so the cluster's folder in the state store is not known; give it with \
                 --config-base",
                self.conf.display()
            ))
        })?;
        Ok(base.trim_end_matches('/').to_owned())
    }
}

#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Local folders that replace URLs, each as `URL=DIR`.
    pub mirrors: Vec<String>,
    /// How long to retry a store that does not answer.
    pub timeout: Duration,
}

impl StoreOptions {
    pub fn open(&self) -> Result<Store> {
        Ok(Store::new(&self.mirrors)?.with_retries(self.retries()))
    }

    pub fn retries(&self) -> Retries {
        Retries { deadline: self.timeout, ..Retries::default() }
    }
}
