//! `kops-agent fleet`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use kops_agent_controller::fleet::FleetStatusArgs;

/// What can be done with the nodes of a cluster.
#[derive(Clone, Debug, Subcommand)]
pub enum FleetCommand {
    /// Say of each node of a cluster which configuration it runs, whether its group has a newer one, what failed, and which of
    /// its certificates expires first. Ends with 4 if any is not ready, not configured or superseded, has told nothing, or has a
    /// certificate that has expired or does so within 7 days.
    Status(FleetStatusArgs),
    /// Tell the cluster how this node is, as each run does at its end: as the condition KopsConfigured of its Node and the
    /// annotation of the certificate that expires first, with kubelet's credentials.
    Tell(FleetTellArgs),
}

/// Arguments of `fleet tell`.
#[derive(Args, Clone, Debug)]
pub struct FleetTellArgs {
    /// The machine's root.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// For how many seconds to try again while kubelet has not registered this machine, or the API server does not answer.
    #[arg(long, alias = "patience", value_name = "SECONDS", default_value_t = 0)]
    pub timeout: u64,
    /// Tell nothing. Wait until no run is at work on this machine, and uncordon the node if one has left it cordoned: what a run that
    /// drains has systemd do beside it.
    #[arg(long, hide = true)]
    pub only_uncordon: bool,
}
