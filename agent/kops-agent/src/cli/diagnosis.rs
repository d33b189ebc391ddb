//! Flags of `kops-agent doctor` and `kops-agent support-bundle`. The machine may lack anything that these commands look
//! for.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use kops_agent_node::options::NodeOptions;
use kops_agent_plan::following::Follow;
use kops_agent_source::{OnHashMismatch, SourceOptions, StoreOptions};

use super::Output;
use super::spec::{ConfigFromArg, default_conf};

/// The default of `--store-timeout`, in seconds. It is short because operators run these commands at a terminal.
const STORE_TIMEOUT: u64 = 10;

/// The machine to examine, and the node that it should be.
#[derive(Args, Clone, Debug)]
pub struct ExamineArgs {
    /// The boot config (kube_env.yaml), or the user-data that carries it.
    #[arg(long, value_name = "FILE|URL", default_value_os_t = default_conf())]
    pub conf: PathBuf,
    /// Where the configuration comes from.
    #[arg(long, value_enum, default_value_t)]
    pub config_from: ConfigFromArg,
    /// The cluster's folder in the state store, instead of the boot config's ConfigBase.
    #[arg(long, value_name = "URL")]
    pub config_base: Option<String>,
    /// Read what is below URL from the folder DIR; may be given more than once.
    #[arg(long, value_name = "URL=DIR")]
    pub store_mirror: Vec<String>,
    /// Seconds to retry a store that does not answer.
    #[arg(long = "store-timeout", alias = "store-patience", value_name = "SECONDS", default_value_t = STORE_TIMEOUT)]
    pub store_timeout: u64,
    /// Use these facts (YAML or JSON) instead of observing this machine and its cloud.
    #[arg(long, value_name = "FILE")]
    pub facts: Option<PathBuf>,
    /// The machine's root.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub machine: ExamineArgs,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Args, Clone, Debug)]
pub struct SupportBundleArgs {
    #[command(flatten)]
    pub machine: ExamineArgs,
    /// File to write; it must not exist yet. Default: a file in /var/tmp with the host's name and the time.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

impl ExamineArgs {
    /// The options that decide the node of this machine.
    pub fn options(&self) -> NodeOptions {
        NodeOptions {
            source: SourceOptions {
                conf: self.conf.clone(),
                config_from: self.config_from.into(),
                config_base: self.config_base.clone(),
                asset_hashes: None,
                on_hash_mismatch: OnHashMismatch::Warn,
                follow: Follow::Stay,
                node_root: self.root.clone(),
            },
            store: StoreOptions {
                mirrors: self.store_mirror.clone(),
                timeout: Duration::from_secs(self.store_timeout),
            },
            facts: self.facts.clone(),
            controller: false,
            addons: false,
            rollouts: false,
        }
    }
}
