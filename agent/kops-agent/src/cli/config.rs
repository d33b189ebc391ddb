//! `kops-agent config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use kops_agent_process::output::Output;

use super::spec::{SpecArgs, StoreArgs, default_conf};
use crate::source::{ConfigFrom, OnHashMismatch};

/// What can be done with a configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print nodeupconfig.yaml of a group as kOps would have written it, byte for byte.
    Derive(DeriveArgs),
    /// Print what this node is decided from, every default settled.
    Dump(DumpArgs),
    /// Say all that is wrong, and which fields do less than they seem to.
    Check(CheckArgs),
}

/// Arguments of `config derive`.
#[derive(Args, Clone, Debug)]
pub struct DeriveArgs {
    /// The cluster's folder in the state store.
    #[arg(long, value_name = "URL")]
    pub config_base: String,
    /// The instance group.
    #[arg(long, value_name = "NAME")]
    pub instance_group: String,
    /// How the store is reached.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Hashes of downloads, as lines of `sha256  URL`, for machines that cannot reach the publishers.
    #[arg(long, value_name = "FILE")]
    pub asset_hashes: Option<PathBuf>,
}

/// Arguments of `config dump`.
#[derive(Args, Clone, Debug)]
pub struct DumpArgs {
    /// What decides the node.
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Show your own texts too: files, hooks, variables. Private keys and secrets of the store stay hidden.
    #[arg(long)]
    pub show_secrets: bool,
    /// How it is printed: as YAML, or as JSON.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `config check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// The boot config of a machine, which is then checked as a whole; without --instance-group it is that of this machine.
    #[arg(long, value_name = "FILE|URL")]
    pub conf: Option<PathBuf>,
    /// The instance group, if it is to be checked without a machine.
    #[arg(long, value_name = "NAME", requires = "config_base", conflicts_with = "conf")]
    pub instance_group: Option<String>,
    /// The cluster's folder in the state store, instead of the boot config's ConfigBase.
    #[arg(long, value_name = "URL")]
    pub config_base: Option<String>,
    /// Where the configuration of a machine comes from.
    #[arg(long, value_enum, default_value_t = ConfigFrom::ClusterSpec)]
    pub config_from: ConfigFrom,
    /// How the store is reached.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Use these facts (YAML or JSON) instead of observing this machine and its cloud.
    #[arg(long, value_name = "FILE")]
    pub facts: Option<PathBuf>,
    /// How the findings are printed.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

impl CheckArgs {
    /// What decides the machine, where there is one.
    pub fn spec(&self) -> Option<SpecArgs> {
        let conf = match (&self.conf, &self.instance_group) {
            (Some(conf), _) => conf.clone(),
            (None, None) => default_conf(),
            (None, Some(_)) => return None,
        };
        Some(SpecArgs {
            conf,
            config_from: self.config_from,
            config_base: self.config_base.clone(),
            store: self.store.clone(),
            facts: self.facts.clone(),
            asset_hashes: None,
            on_hash_mismatch: OnHashMismatch::Warn,
            controller: false,
            addons: false,
        })
    }
}
