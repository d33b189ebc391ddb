//! Flags for everything that decides a node, and for the state store.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use kops_agent_plan::following::Follow;

use kops_agent_node::options::NodeOptions;
use kops_agent_source::{ConfigFrom, OnHashMismatch, SourceOptions, StoreOptions, default_conf};

/// The default of `--store-timeout`, in seconds: long enough for a network that comes up late, short enough for an
/// operator who waits for the error.
pub const STORE_TIMEOUT: u64 = 60;

/// The flags that find a node's configuration.
#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// The boot config (kube_env.yaml), or the user-data that carries it.
    #[arg(long, value_name = "FILE|URL", default_value_os_t = default_conf())]
    pub conf: PathBuf,

    /// Where the configuration comes from.
    #[arg(long, value_enum, default_value_t)]
    pub config_from: ConfigFromArg,

    /// The cluster's folder in the state store, instead of the boot config's ConfigBase.
    #[arg(long, value_name = "URL")]
    pub config_base: Option<String>,
}

/// The flags that decide a node, shared by every command that decides one.
#[derive(Args, Clone, Debug)]
pub struct SpecArgs {
    #[command(flatten)]
    pub config: ConfigArgs,

    #[command(flatten)]
    pub store: StoreArgs,

    /// Use these facts (YAML or JSON) instead of observing this machine and its cloud.
    #[arg(long, value_name = "FILE")]
    pub facts: Option<PathBuf>,

    /// Hashes of downloads, as lines of `sha256  URL`, for machines that cannot reach the publishers.
    #[arg(long, value_name = "FILE")]
    pub asset_hashes: Option<PathBuf>,

    /// Action if the cluster spec gives another configuration than the user-data pins, and the pinned one is not
    /// available.
    #[arg(long, value_enum, default_value_t)]
    pub on_hash_mismatch: OnHashMismatchArg,

    /// On a control plane, install control-plane mode as a service (`kops-agent controller`) in place of kOps'
    /// kops-controller: its configuration, a kubeconfig and the unit. KOPS_AGENT_CONTROLLER=true does the same, and
    /// false removes the service. Set the variable in /etc/environment, where every run finds it. Without the flag and
    /// the variable, the service stays as it is.
    #[arg(long)]
    pub controller: bool,

    /// On a control plane, apply the cluster's add-ons with a service (`kops-agent addons run`) in place of kOps'
    /// channels pod, whose manifest is removed. Up to kOps 1.35 the service replaces protokube, which then only does
    /// gossip. KOPS_AGENT_ADDONS=true does the same, and false restores kOps' own. Set the variable in
    /// /etc/environment, where every run finds it. Without the flag and the variable, the service stays as it is.
    #[arg(long)]
    pub addons: bool,

    /// Install a service (`kops-agent fleet follow`) that takes the current configuration of the instance group when
    /// `kops-agent fleet rollout` orders it. KOPS_AGENT_ROLLOUTS=true does the same, and false removes the service. Set
    /// the variable in /etc/environment, where every run finds it. Without the flag and the variable, the service stays
    /// as it is.
    #[arg(long)]
    pub rollouts: bool,
}

/// Flags for reaching the state store.
#[derive(Args, Clone, Debug)]
pub struct StoreArgs {
    /// Read what is below URL from the folder DIR; may be given more than once.
    #[arg(long, value_name = "URL=DIR")]
    pub store_mirror: Vec<String>,

    /// Seconds to retry a store, or a kops-controller in its place, that does not answer.
    #[arg(long = "store-timeout", alias = "store-patience", value_name = "SECONDS", default_value_t = STORE_TIMEOUT)]
    pub store_timeout: u64,
}

impl ConfigArgs {
    /// The options that find the configuration of the node whose files are below `node_root`.
    pub(super) fn source(&self, node_root: &Path) -> SourceOptions {
        SourceOptions {
            conf: self.conf.clone(),
            config_from: self.config_from.into(),
            config_base: self.config_base.clone(),
            asset_hashes: None,
            on_hash_mismatch: OnHashMismatch::Warn,
            follow: Follow::Stay,
            node_root: node_root.to_owned(),
        }
    }
}

impl SpecArgs {
    /// The options for deciding the configuration of the node whose files are below `node_root`. The credentials in these
    /// files prove the identity of the node to kops-controller.
    pub fn for_machine(&self, node_root: &Path) -> NodeOptions {
        NodeOptions {
            source: SourceOptions {
                asset_hashes: self.asset_hashes.clone(),
                on_hash_mismatch: self.on_hash_mismatch.into(),
                ..self.config.source(node_root)
            },
            store: self.store.options(),
            facts: self.facts.clone(),
            controller: self.controller,
            addons: self.addons,
            rollouts: self.rollouts,
        }
    }
}

/// Which configuration of its group this machine takes.
#[derive(Args, Clone, Debug, Default)]
pub struct FollowArgs {
    /// Take the current configuration of the instance group instead of the one that the user-data pins, and stay with
    /// it, also after a reboot. With HASH (a NodeupConfigHash), take it only if it has this hash. Only then may it be
    /// a configuration from which this node has already changed to another one.
    #[arg(long, value_name = "HASH", num_args = 0..=1, require_equals = true, value_parser = NonEmptyStringValueParser::new())]
    pub follow: Option<Option<String>>,

    /// Go back to the configuration that the user-data pins.
    #[arg(long, conflicts_with = "follow")]
    pub no_follow: bool,

    /// With --follow=HASH, take no configuration from which this node has already changed to another one.
    #[arg(long, requires = "follow")]
    pub only_newer: bool,

    /// With --follow=HASH, take nothing unless this node will trust the authorities of kubernetes-ca with this digest.
    #[arg(long, value_name = "DIGEST", requires = "follow", value_parser = NonEmptyStringValueParser::new())]
    pub authorities: Option<String>,
}

impl FollowArgs {
    /// These options, with the configuration that these flags ask for.
    pub fn applied_to(&self, options: NodeOptions) -> NodeOptions {
        options.following(match &self.follow {
            _ if self.no_follow => Follow::UserData,
            None => Follow::Stay,
            Some(None) => Follow::Newest,
            Some(Some(hash)) => Follow::To {
                hash: hash.clone(),
                may_go_back: !self.only_newer,
                authorities: self.authorities.clone(),
            },
        })
    }
}

impl StoreArgs {
    pub fn options(&self) -> StoreOptions {
        StoreOptions { mirrors: self.store_mirror.clone(), timeout: Duration::from_secs(self.store_timeout) }
    }
}

/// Where the configuration comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ConfigFromArg {
    /// From the cluster spec; where the boot config pins a nodeupconfig, both are compared and the pinned one wins
    #[default]
    Auto,
    /// From cluster-completed.spec and the InstanceGroup
    ClusterSpec,
    /// From the nodeupconfig.yaml that kOps wrote for the instance group
    NodeupConfig,
}

impl From<ConfigFromArg> for ConfigFrom {
    fn from(from: ConfigFromArg) -> ConfigFrom {
        match from {
            ConfigFromArg::Auto => ConfigFrom::Auto,
            ConfigFromArg::ClusterSpec => ConfigFrom::ClusterSpec,
            ConfigFromArg::NodeupConfig => ConfigFrom::NodeupConfig,
        }
    }
}

/// Action if the derived configuration differs from the pinned one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnHashMismatchArg {
    /// Log a warning, and use the derived configuration
    #[default]
    Warn,
    /// End with an error, and change nothing
    Refuse,
}

impl From<OnHashMismatchArg> for OnHashMismatch {
    fn from(mismatch: OnHashMismatchArg) -> OnHashMismatch {
        match mismatch {
            OnHashMismatchArg::Warn => OnHashMismatch::Warn,
            OnHashMismatchArg::Refuse => OnHashMismatch::Refuse,
        }
    }
}
