//! The command line of `kops-agent addons`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use kops_agent_process::exit::WrongConfiguration;
use kops_agent_process::output::Output;

use crate::kubernetes::{Chosen, KubeconfigArgs};

/// The administrator's kubeconfig of a control-plane machine.
const OF_MACHINE: &str = "/var/lib/kubectl/kubeconfig";

/// What can be done with add-ons.
#[derive(Clone, Debug, Subcommand)]
pub enum AddonsCommand {
    /// Say which add-ons the channels have, which of them the cluster has, and which are due. Ends with 4 if any is.
    Status(AddonsArgs),
    /// Show what applying the add-ons would change of the cluster's objects, as the API server says without changing any.
    Diff(AddonsDiffArgs),
    /// Apply the add-ons that are due, as kOps' channels pod does.
    Apply(AddonsApplyArgs),
    /// Delete the objects of an add-on that no channel has any more. Without --yes this only shows them.
    Remove(AddonsRemoveArgs),
    /// Do what kOps' channels pod does, in its place, until it is stopped: apply add-ons whenever they are due, and label this
    /// machine's Node. Of several control planes one applies.
    Run(AddonsRunArgs),
}

/// Which channels, of which cluster.
#[derive(Args, Clone, Debug)]
pub struct ChannelArgs {
    /// A channel; may be given more than once. Without one they are those of --settings, or else it is the channel that
    /// `kops update cluster` writes into the folder of the cluster that --conf names.
    #[arg(long, value_name = "URL")]
    pub channel: Vec<String>,
    /// What kOps' channels pod would do on this machine, as `converge --addons` writes it. Without this it is
    /// /etc/kubernetes/kops-channels/settings.json, where that is there.
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// kops-controller's configuration, which names the cluster's folder in the state store.
    #[arg(long, value_name = "FILE", default_value = "/etc/kubernetes/kops-controller/config.yaml")]
    pub conf: PathBuf,
    /// How an administrator reaches the API server.
    #[command(flatten)]
    pub kubeconfig: KubeconfigArgs,
    /// Read what is below URL from the folder DIR; may be given more than once.
    #[arg(long, value_name = "URL=DIR")]
    pub store_mirror: Vec<String>,
}

impl ChannelArgs {
    /// Chooses the kubeconfig: the arguments, `KUBECONFIG`, the control plane's own, or `~/.kube/config`.
    ///
    /// # Errors
    /// `--kubeconfig`, `KUBECONFIG` and `HOME` are not set, and this machine has no kubeconfig of its own.
    pub fn chosen(&self) -> Result<Chosen, WrongConfiguration> {
        self.kubeconfig.choose(Some(Path::new(OF_MACHINE)), |name| std::env::var_os(name))
    }
}

/// Which add-ons, of which cluster.
#[derive(Args, Clone, Debug)]
pub struct AddonsArgs {
    /// One add-on; without this, all.
    pub name: Option<String>,
    /// Which channels.
    #[command(flatten)]
    pub channels: ChannelArgs,
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
    /// Delete an object of the add-on's manifest and create it anew, for a change of its immutable fields. Without --yes this only shows
    /// what would be done. May be given more than once. Example: Deployment/kube-system/coredns
    #[arg(long, value_name = "KIND/[NAMESPACE/]NAME", requires = "name")]
    pub recreate: Vec<String>,
    /// Do what --recreate shows.
    #[arg(long, requires = "recreate")]
    pub yes: bool,
    /// How often to try again those that fail. Pauses grow from some two seconds to a minute or two.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub retries: u32,
}

/// Arguments of `addons remove`.
#[derive(Args, Clone, Debug)]
pub struct AddonsRemoveArgs {
    /// The add-on.
    pub name: String,
    /// Which channels.
    #[command(flatten)]
    pub channels: ChannelArgs,
    /// Delete what is shown.
    #[arg(long)]
    pub yes: bool,
    /// How the result is printed.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `addons run`.
#[derive(Args, Clone, Debug)]
pub struct AddonsRunArgs {
    /// Which channels.
    #[command(flatten)]
    pub channels: ChannelArgs,
    /// After how many seconds channels and the cluster's versions are looked at again.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub interval: u64,
    /// The Node that gets the labels of a control plane. Without this it is that of the settings, or none.
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Labels that this Node gets besides, as in `a,b=c`.
    #[arg(long, value_name = "LABELS", requires = "node_name", default_value = "")]
    pub node_labels: String,
    /// Where /healthz, /readyz and /metrics are answered. kOps' channels pod has the same port, and ends where it is taken.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:3986")]
    pub health_listen: String,
}
