//! `kops-agent fleet`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use kops_agent_source::default_conf;

use super::live::instance_groups;
use super::{KubeconfigArgs, Output, RebootArgs, RolloutCommand, UpgradeArgs};

#[derive(Clone, Debug, Subcommand)]
pub enum FleetCommand {
    /// Show the change that waits for the nodes of each instance group: how many are superseded, what changes, which
    /// units and static pods restart. Also shows which nodes need a new machine, and why.
    /// Each node plans its own change every hour and reports it in its Node; this command changes nothing.
    Plan(FleetPlanArgs),
    /// Show which configuration each node of a cluster runs, whether its group has a newer one, what failed, which
    /// certificate expires first, and whether the node requires a reboot. Ends with 4 if a node is not ready, not configured
    /// or superseded, has not reported, or has a certificate that expires within 7 days.
    Status(FleetStatusArgs),
    /// Report the status of this node to the cluster, as each run does at its end. Sets the condition KopsConfigured and
    /// the early warnings of its Node, and the annotations of the certificate that expires first, of the next configuration,
    /// of the followed one, of the machine, of a required reboot and of the program, with kubelet's credentials.
    Tell(FleetTellArgs),
    /// Have the nodes of the cluster take the current configurations of their groups, in a safe order.
    Rollout {
        #[command(subcommand)]
        command: RolloutCommand,
    },
    /// Reboot nodes, a few at a time: of the given instance groups, or all nodes that require it. Control planes first, one at
    /// a time. A node that does not come back pauses its group. `fleet rollout` shows, pauses, resumes and aborts it.
    Reboot(RebootArgs),
    /// Take nodes to another version of kops-agent, a few at a time, control planes first. Each node downloads the program, tries
    /// it, replaces its own and reports. A node that fails pauses its group. Its message says whether the node kept its
    /// program, or runs the new program, which then failed its check. `fleet rollout` shows, pauses, resumes and aborts the rollout.
    Upgrade(UpgradeArgs),
    /// Wait for orders of a rollout to this machine, and carry them out. The service kops-agent-follow.service runs this
    /// (`converge --rollouts`).
    Follow(FleetFollowArgs),
}

#[derive(Args, Clone, Debug)]
pub struct FleetPlanArgs {
    /// Access to the API server, as a user with the right to list Nodes.
    #[command(flatten)]
    pub kubeconfig: KubeconfigArgs,
    /// Show only this instance group; may be given more than once
    #[arg(long = "instance-group", value_name = "NAME", add = instance_groups())]
    pub instance_groups: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Args, Clone, Debug)]
pub struct FleetStatusArgs {
    /// Access to the API server, as a user with the right to list Nodes.
    #[command(flatten)]
    pub kubeconfig: KubeconfigArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// Print the table again after each change, at most once a second
    ///
    /// With -o json, prints one line for each node, then one line for each changed node. SIGINT or SIGTERM ends the
    /// command with 0.
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Args, Clone, Debug)]
pub struct FleetFollowArgs {
    /// The boot config (kube_env.yaml), or the user-data that carries it.
    #[arg(long, value_name = "FILE|URL", default_value_os_t = default_conf())]
    pub conf: PathBuf,
    /// The machine's root.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Read this machine's Node once, and end. A node runs another version with this flag before it replaces its own.
    #[arg(long, hide = true)]
    pub check: bool,
}

#[derive(Args, Clone, Debug)]
pub struct FleetTellArgs {
    /// The machine's root.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Seconds to retry while kubelet has not registered this machine, or the API server does not answer.
    #[arg(long, alias = "patience", value_name = "SECONDS", default_value_t = 0)]
    pub timeout: u64,
    /// Report nothing. Wait until no run is in progress on this machine, and uncordon the node if a run left it cordoned. A
    /// run that drains starts this command through systemd.
    #[arg(long, hide = true)]
    pub only_uncordon: bool,
}
