//! `kops-agent fleet rollout`, `kops-agent fleet reboot` and `kops-agent fleet upgrade`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, value_parser};

use kops_agent_cluster::rollout::{DrainMode, MOST_CANARIES, MaxUnavailable, Rollout, Window};

use super::live::instance_groups;
use super::{KubeconfigArgs, Output};

#[derive(Clone, Debug, Subcommand)]
pub enum RolloutCommand {
    /// Have the nodes take the current configuration of their groups: control planes first, one at a time, then other
    /// API servers, then canaries, then all others. A node that fails pauses its group.
    Start(RolloutStartArgs),
    /// Show how far the rollout is. Ends with 0 if it is done, and with 4 otherwise.
    Status(RolloutStatusArgs),
    /// Give no further orders. Nodes that are updating finish.
    Pause(KubeconfigArgs),
    /// Continue a paused or stopped rollout. Nodes that failed try again.
    Resume(KubeconfigArgs),
    /// End the rollout. Nodes that are updating finish; all others stay unchanged.
    Abort(KubeconfigArgs),
}

#[derive(Args, Clone, Debug)]
pub struct RolloutStartArgs {
    /// Access to the API server, as a user with the right to list Nodes and to write the ConfigMap kops-agent/rollout.
    #[command(flatten)]
    pub kubeconfig: KubeconfigArgs,
    /// Only the nodes of this instance group; may be given more than once. Default: all groups.
    #[arg(long = "instance-group", value_name = "GROUP", add = instance_groups())]
    pub instance_groups: Vec<String>,
    /// Number or share of the nodes of each group that may be unavailable at a time, such as 2 or 10%. Control planes
    /// always change one at a time.
    #[arg(long, value_name = "N|P%", default_value_t)]
    pub max_unavailable: MaxUnavailable,
    /// Number of nodes of each group of workers that change before all other workers.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub canary: u32,
    /// When to drain a node before its components restart.
    #[arg(long, value_enum, default_value_t)]
    pub drain: DrainArg,
    /// Take configurations that nodes have left before, too.
    #[arg(long)]
    pub go_back: bool,
    /// Seconds that a node waits for each changed component to become healthy before it rolls back.
    #[arg(long, value_name = "SECONDS", default_value_t = Rollout::health_timeout(), value_parser = value_parser!(u32).range(1..))]
    pub health_timeout: u32,
    /// Seconds after which a node without a result has failed.
    #[arg(long, value_name = "SECONDS", default_value_t = Rollout::node_timeout(), value_parser = value_parser!(u32).range(1..))]
    pub node_timeout: u32,
    /// Seconds that a changed node is Ready before its pods are compared with its pods from before the order; 0 disables
    /// the comparison.
    #[arg(long, value_name = "SECONDS", default_value_t = Rollout::check_pods_after())]
    pub check_pods_after: u32,
    /// Time in which nodes may begin, such as "Mon-Fri 22:00-05:00 Europe/Berlin"; may be given more than once. Nodes that
    /// are updating finish outside of it. Default: always.
    #[arg(long = "window", value_name = "DAYS HH:MM-HH:MM ZONE")]
    pub windows: Vec<Window>,
}

/// When to drain a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DrainArg {
    /// For a minor upgrade of kubelet and a major upgrade of containerd.
    #[default]
    Auto,
    /// Before each restart of kubelet, containerd, the API server or etcd.
    Always,
    /// Never.
    Never,
}

impl From<DrainArg> for DrainMode {
    fn from(drain: DrainArg) -> DrainMode {
        match drain {
            DrainArg::Auto => DrainMode::Auto,
            DrainArg::Always => DrainMode::Always,
            DrainArg::Never => DrainMode::Never,
        }
    }
}

#[derive(Args, Clone, Debug)]
pub struct RolloutStatusArgs {
    #[command(flatten)]
    pub kubeconfig: KubeconfigArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// Print the status again after each change, until the rollout is done or stops
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Args, Clone, Debug)]
pub struct RebootArgs {
    /// Access to the API server, as a user with the right to list Nodes and to write the ConfigMap kops-agent/rollout.
    #[command(flatten)]
    pub kubeconfig: KubeconfigArgs,
    /// All nodes of this instance group, whether they require a reboot or not; may be given more than once.
    #[arg(long = "instance-group", value_name = "GROUP", add = instance_groups())]
    pub instance_groups: Vec<String>,
    /// Only nodes that report that they require a reboot (`fleet status`). Of all groups, unless --instance-group is given.
    #[arg(long)]
    pub all_required: bool,
    /// Number or share of the nodes of each group that may be unavailable at a time, such as 2 or 10%. Control planes
    /// always reboot one at a time.
    #[arg(long, value_name = "N|P%", default_value_t)]
    pub max_unavailable: MaxUnavailable,
    /// Whether to drain a node before it reboots.
    #[arg(long, value_enum, default_value_t)]
    pub drain: RebootDrainArg,
    /// Seconds after which a node that is not Ready again has failed.
    #[arg(long, value_name = "SECONDS", default_value_t = Rollout::node_timeout(), value_parser = value_parser!(u32).range(1..))]
    pub node_timeout: u32,
    /// Seconds that a node is Ready in its new boot before its pods are compared with its pods from before the order; 0
    /// disables the comparison.
    #[arg(long, value_name = "SECONDS", default_value_t = Rollout::check_pods_after())]
    pub check_pods_after: u32,
    /// Time in which nodes may begin, as for `fleet rollout start`; may be given more than once. Default: always.
    #[arg(long = "window", value_name = "DAYS HH:MM-HH:MM ZONE")]
    pub windows: Vec<Window>,
    /// Label selector of pods. A node with such a pod does not begin to reboot.
    #[arg(long, value_name = "SELECTOR", default_value = "")]
    pub blocked_by_pods: String,
    /// Query of Prometheus. While it has a result, no node begins to reboot. Such as 'ALERTS{alertstate="firing",severity="critical"}'.
    #[arg(long, value_name = "QUERY", default_value = "", requires = "prometheus")]
    pub blocked_by_alerts: String,
    /// The Service of Prometheus, such as monitoring/prometheus:9090.
    #[arg(long, value_name = "NAMESPACE/NAME:PORT", default_value = "")]
    pub prometheus: String,
}

/// Whether to drain a node before it reboots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RebootDrainArg {
    /// Drain the node.
    #[default]
    Always,
    /// Evict no pods.
    Never,
}

impl From<RebootDrainArg> for DrainMode {
    fn from(drain: RebootDrainArg) -> DrainMode {
        match drain {
            RebootDrainArg::Always => DrainMode::Always,
            RebootDrainArg::Never => DrainMode::Never,
        }
    }
}

#[derive(Args, Clone, Debug)]
pub struct UpgradeArgs {
    /// Access to the API server, as a user with the right to list Nodes and to write the ConfigMap kops-agent/rollout.
    #[command(flatten)]
    pub kubeconfig: KubeconfigArgs,
    /// File with the version, and for each architecture the URL and the SHA-256 of the program. The state store must have the
    /// same file, as kops-agent/program.yaml below the cluster's folder.
    #[arg(long, value_name = "FILE")]
    pub program: PathBuf,
    /// Only the nodes of this instance group; may be given more than once. Default: all groups.
    #[arg(long = "instance-group", value_name = "GROUP", add = instance_groups())]
    pub instance_groups: Vec<String>,
    /// Number or share of the nodes of each group that change at a time, such as 2 or 10%; a node that is not Ready counts.
    /// Control planes always change one at a time.
    #[arg(long, value_name = "N|P%", default_value_t)]
    pub max_unavailable: MaxUnavailable,
    /// Number of nodes of each group of workers that change before all other workers; at most 100.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = value_parser!(u32).range(..=i64::from(MOST_CANARIES)))]
    pub canary: u32,
    /// Seconds after which a node without a result has failed.
    #[arg(long, value_name = "SECONDS", default_value_t = Rollout::node_timeout(), value_parser = value_parser!(u32).range(1..))]
    pub node_timeout: u32,
    /// Seconds for which the canaries must be Ready and report no problem before other workers begin; 0 for no wait. Needs
    /// --canary. Default: 300.
    #[arg(long, value_name = "SECONDS")]
    pub observe: Option<u32>,
    /// Time in which nodes may begin, as for `fleet rollout start`; may be given more than once. Default: always.
    #[arg(long = "window", value_name = "DAYS HH:MM-HH:MM ZONE")]
    pub windows: Vec<Window>,
}
