//! The command line of `kops-agent addons`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use kops_agent_process::output::Output;

/// What can be done with add-ons.
#[derive(Clone, Debug, Subcommand)]
pub enum AddonsCommand {
    /// Say which add-ons the channels have, which of them the cluster has, and which are due. Ends with 4 if any is.
    Status(AddonsArgs),
    /// Show what applying the add-ons would change of the cluster's objects, as the API server says without changing any.
    Diff(AddonsDiffArgs),
    /// Apply the add-ons that are due, as kOps' channels pod does.
    Apply(AddonsApplyArgs),
}

/// Which add-ons, of which cluster.
#[derive(Args, Clone, Debug)]
pub struct AddonsArgs {
    /// One add-on; without this, all.
    pub name: Option<String>,
    /// A channel; may be given more than once. Without one it is the channel that `kops update cluster` writes into the folder
    /// of the cluster that --conf names.
    #[arg(long, value_name = "URL")]
    pub channel: Vec<String>,
    /// kops-controller's configuration, which names the cluster's folder in the state store.
    #[arg(long, value_name = "FILE", default_value = "/etc/kubernetes/kops-controller/config.yaml")]
    pub conf: PathBuf,
    /// How an administrator reaches the API server.
    #[arg(long, value_name = "FILE", default_value = "/var/lib/kubectl/kubeconfig")]
    pub kubeconfig: PathBuf,
    /// Read what is below URL from the folder DIR; may be given more than once.
    #[arg(long, value_name = "URL=DIR")]
    pub store_mirror: Vec<String>,
    /// How the result is printed.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `addons diff`.
#[derive(Args, Clone, Debug)]
pub struct AddonsDiffArgs {
    /// Which add-ons, of which cluster.
    #[command(flatten)]
    pub addons: AddonsArgs,
    /// End with 4 if there is a difference.
    #[arg(long)]
    pub exit_code: bool,
}

/// Arguments of `addons apply`.
#[derive(Args, Clone, Debug)]
pub struct AddonsApplyArgs {
    /// Which add-ons, of which cluster.
    #[command(flatten)]
    pub addons: AddonsArgs,
    /// Apply also those of which the cluster has the channel's version, which puts back what others have changed.
    #[arg(long)]
    pub reapply: bool,
    /// How often to try again those that fail. Pauses grow from some two seconds to a minute or two.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub retries: u32,
}
