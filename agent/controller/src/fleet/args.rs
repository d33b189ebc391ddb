//! The command line of `kops-agent fleet status`.

use clap::Args;
use kops_agent_process::output::Output;

use crate::kubernetes::KubeconfigArgs;

/// Arguments of `fleet status`.
#[derive(Args, Clone, Debug)]
pub struct FleetStatusArgs {
    /// How the API server is reached, as a user that may list Nodes.
    #[command(flatten)]
    pub kubeconfig: KubeconfigArgs,
    /// How the result is printed.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// Print it again whenever a node has changed, once a second at most, until it is stopped, which ends it with 0. As JSON a line
    /// for each node, and then one for each that has changed.
    #[arg(short, long)]
    pub watch: bool,
}
