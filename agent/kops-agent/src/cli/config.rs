//! `kops-agent config`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use kops_agent_source::default_conf;

use super::Output;
use super::spec::{ConfigArgs, ConfigFromArg, OnHashMismatchArg, SpecArgs, StoreArgs};

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print nodeupconfig.yaml of a group as kOps would have written it, byte for byte.
    Derive(DeriveArgs),
    /// Print the resolved configuration of this node, with every default filled in.
    Dump(DumpArgs),
    /// List the errors of a configuration, and fields that have less effect than they seem to.
    Check(CheckArgs),
    /// List all files, images and packages that the nodes of a cluster need, of all groups and architectures. With
    /// --check, ends with 4 if a server lacks a file or an image.
    Assets(AssetsArgs),
}

#[derive(Args, Clone, Debug)]
pub struct DeriveArgs {
    /// The cluster's folder in the state store.
    #[arg(long, value_name = "URL")]
    pub config_base: String,
    /// The instance group.
    #[arg(long, value_name = "NAME")]
    pub instance_group: String,
    #[command(flatten)]
    pub store: StoreArgs,
    /// Hashes of downloads, as lines of `sha256  URL`, for machines that cannot reach the publishers.
    #[arg(long, value_name = "FILE")]
    pub asset_hashes: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct AssetsArgs {
    /// The cluster's folder in the state store.
    #[arg(long, value_name = "URL")]
    pub config_base: String,
    /// Only this instance group; may be given more than once. Default: all groups.
    #[arg(long, value_name = "NAME")]
    pub instance_group: Vec<String>,
    #[command(flatten)]
    pub store: StoreArgs,
    /// Hashes of downloads, as lines of `sha256  URL`, in addition to the hashes that kOps wrote into the store.
    #[arg(long, value_name = "FILE")]
    pub asset_hashes: Option<PathBuf>,
    /// Ask the servers for each file and image, without downloading it. Each line then begins with ok, MISSING,
    /// UNKNOWN, or - for packages, which are not checked.
    #[arg(long)]
    pub check: bool,
    /// Output format. A line of text is: kind; SHA-256 of a file or distribution of a package, or -; name.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Args, Clone, Debug)]
pub struct DumpArgs {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Show your own texts too: files, hooks, variables. Private keys and secrets of the store stay hidden.
    #[arg(long)]
    pub show_secrets: bool,
    /// Output format; text is YAML.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// Boot config of the machine to check. Default: the boot config of this machine, unless --instance-group is given.
    #[arg(long, value_name = "FILE|URL")]
    pub conf: Option<PathBuf>,
    /// Instance group to check without a machine.
    #[arg(long, value_name = "NAME", requires = "config_base", conflicts_with = "conf")]
    pub instance_group: Option<String>,
    /// The cluster's folder in the state store, instead of the boot config's ConfigBase.
    #[arg(long, value_name = "URL")]
    pub config_base: Option<String>,
    /// Where the configuration of a machine comes from.
    #[arg(long, value_enum, default_value_t = ConfigFromArg::ClusterSpec)]
    pub config_from: ConfigFromArg,
    #[command(flatten)]
    pub store: StoreArgs,
    /// Use these facts (YAML or JSON) instead of observing this machine and its cloud.
    #[arg(long, value_name = "FILE")]
    pub facts: Option<PathBuf>,
    /// Check the manifests of clusters and instance groups in these folders and files, before kOps completes them. Asks
    /// neither a state store nor a cloud.
    #[arg(
        long,
        value_name = "DIR|FILE",
        num_args = 1..,
        requires = "kops",
        conflicts_with_all = ["conf", "instance_group", "config_base", "config_from", "store_mirror", "facts"]
    )]
    pub manifests: Vec<PathBuf>,
    /// The kOps release that the manifests are for, such as 1.36.
    #[arg(long, value_name = "VERSION", requires = "manifests")]
    pub kops: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: CheckOutput,
}

/// Output formats of `config check`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CheckOutput {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
    /// Annotations of GitHub Actions.
    Github,
}

impl CheckArgs {
    /// The flags that decide the machine; `None` for the check of a group without a machine.
    pub fn spec(&self) -> Option<SpecArgs> {
        let conf = match (&self.conf, &self.instance_group) {
            (Some(conf), _) => conf.clone(),
            (None, None) => default_conf(),
            (None, Some(_)) => return None,
        };
        let config_base = self.config_base.clone();
        Some(SpecArgs {
            config: ConfigArgs { conf, config_from: self.config_from, config_base },
            store: self.store.clone(),
            facts: self.facts.clone(),
            asset_hashes: None,
            on_hash_mismatch: OnHashMismatchArg::Warn,
            controller: false,
            addons: false,
            rollouts: false,
        })
    }
}
