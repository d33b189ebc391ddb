//! The command line of `kops-agent fleet plan` and `kops-agent fleet status`.

use clap::Args;
use kops_agent_process::output::Output;

use kops_agent_kube::KubeconfigArgs;

/// Arguments of `fleet plan`.
#[derive(Args, Clone, Debug)]
pub struct FleetPlanArgs {
    /// Access to the API server, as a user with the right to list Nodes.
    #[command(flatten)]
    pub kubeconfig: KubeconfigArgs,
    /// Show only this instance group; may be given more than once
    #[arg(long = "instance-group", value_name = "NAME")]
    pub instance_groups: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `fleet status`.
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
