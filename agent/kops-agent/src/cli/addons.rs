//! `kops-agent addons`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};

use kops_agent_controller::addons::{ChannelOptions, ServiceOptions};
use kops_agent_spec::failure::Failure;

use super::live::nodes;
use super::{KubeconfigArgs, Output};

/// The administrator's kubeconfig of a control-plane machine.
pub(super) const OF_MACHINE: &str = "/var/lib/kubectl/kubeconfig";

#[derive(Clone, Debug, Subcommand)]
pub enum AddonsCommand {
    /// Show the state of each add-on in the channels and in the cluster
    ///
    /// The states: current, update due, authority due, new, wrong, paused, in no channel. Ends with 4 if any add-on is
    /// due, new or wrong.
    Status(AddonsArgs),
    /// Show the changes that applying the add-ons would make, by a dry run on the API server
    ///
    /// Includes add-ons that are not due. Ends with 1 if a part of the changes is unknown.
    Diff(AddonsDiffArgs),
    /// Apply the add-ons that are due, as kOps' channels pod does
    Apply(AddonsApplyArgs),
    /// Delete the objects of an add-on that is paused or in no channel. Without --yes, only list them.
    Remove(AddonsRemoveArgs),
    /// Run as a service in place of kOps' channels pod: apply due add-ons, and label this machine's Node
    ///
    /// Only the holder of the Lease kube-system/kops-agent-addons applies add-ons. Each service labels its own Node. The
    /// service ends on SIGINT or SIGTERM, and after a valid change of its settings or kubeconfig.
    Run(AddonsRunArgs),
}

/// The channels, and access to their stores and to the cluster.
#[derive(Args, Clone, Debug)]
pub struct ChannelArgs {
    /// URL of a channel; may be given more than once
    ///
    /// Default: the channels of the settings file (--settings). Without that file: addons/bootstrap-channel.yaml in the
    /// configBase of --conf.
    #[arg(long, value_name = "URL")]
    pub channel: Vec<String>,
    /// Settings file that `converge --addons` writes: the channels, and the name and labels of this machine's Node
    ///
    /// Default: /etc/kubernetes/kops-channels/settings.json, if that file exists.
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// kops-controller's configuration file, whose configBase is the cluster's folder in the state store
    #[arg(long, value_name = "FILE", default_value = "/etc/kubernetes/kops-controller/config.yaml")]
    pub conf: PathBuf,
    /// Access to the API server, as an administrator.
    #[command(flatten)]
    pub kubeconfig: KubeconfigArgs,
    /// Read what is below URL from the folder DIR; may be given more than once.
    #[arg(long, value_name = "URL=DIR")]
    pub store_mirror: Vec<String>,
}

impl ChannelArgs {
    /// The options that find the channels, their stores and the cluster.
    pub fn options(&self) -> Result<ChannelOptions, Failure> {
        Ok(ChannelOptions {
            channels: self.channel.clone(),
            settings: self.settings.clone(),
            conf: self.conf.clone(),
            kubeconfig: self.kubeconfig.choose(Some(Path::new(OF_MACHINE)))?,
            store_mirrors: self.store_mirror.clone(),
        })
    }
}

/// The selected add-ons, and their channels.
#[derive(Args, Clone, Debug)]
pub struct AddonsArgs {
    /// Name of an add-on. Default: all add-ons.
    pub name: Option<String>,
    #[command(flatten)]
    pub channels: ChannelArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Args, Clone, Debug)]
pub struct AddonsDiffArgs {
    #[command(flatten)]
    pub addons: AddonsArgs,
    /// End with 4 if there is a difference
    #[arg(long)]
    pub exit_code: bool,
}

#[derive(Args, Clone, Debug)]
pub struct AddonsApplyArgs {
    #[command(flatten)]
    pub addons: AddonsArgs,
    /// Also apply add-ons that are current, to revert changes that others made to their objects
    #[arg(long)]
    pub reapply: bool,
    /// Delete and recreate an object of the add-on's manifest, to change its immutable fields. Without --yes, only show
    /// the object.
    ///
    /// May be given more than once. Requires NAME. A dry run first checks that the API server accepts the new object.
    /// Example: Deployment/kube-system/coredns
    #[arg(long, value_name = "KIND/[NAMESPACE/]NAME", requires = "name")]
    pub recreate: Vec<String>,
    /// With --recreate: delete and recreate the objects, and apply the add-on
    #[arg(long, requires = "recreate")]
    pub yes: bool,
    /// Number of retries for add-ons that fail. Pauses grow from 2 s to 60 s, plus up to 100 % jitter.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub retries: u32,
}

#[derive(Args, Clone, Debug)]
pub struct AddonsRemoveArgs {
    /// Name of the add-on
    pub name: String,
    #[command(flatten)]
    pub channels: ChannelArgs,
    /// Delete the objects instead of only listing them
    #[arg(long)]
    pub yes: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Args, Clone, Debug)]
pub struct AddonsRunArgs {
    #[command(flatten)]
    pub channels: ChannelArgs,
    /// Seconds between checks of the channels, the installed add-ons and the Node's labels
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub interval: u64,
    /// Node that gets the labels of a control plane. Default: the Node in the settings file, or else no Node.
    #[arg(long, value_name = "NAME", add = nodes())]
    pub node_name: Option<String>,
    /// More labels for the Node of --node-name, such as `a,b=c`
    #[arg(long, value_name = "LABELS", requires = "node_name", default_value = "")]
    pub node_labels: String,
    /// Listen address for /healthz, /readyz and /metrics
    ///
    /// kOps' channels pod uses port 3986 too, and ends if the port is taken. While another process has the port,
    /// kops-agent applies add-ons and retries to listen.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:3986")]
    pub health_listen: String,
}

impl AddonsRunArgs {
    pub fn options(&self) -> Result<ServiceOptions, Failure> {
        Ok(ServiceOptions {
            channels: self.channels.options()?,
            interval: Duration::from_secs(self.interval),
            node_name: self.node_name.clone(),
            node_labels: self.node_labels.clone(),
            health_listen: self.health_listen.clone(),
        })
    }
}
