//! `kops-agent fleet`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use kops_agent_controller::fleet::FleetStatusArgs;

#[derive(Clone, Debug, Subcommand)]
pub enum FleetCommand {
    /// Show which configuration each node of a cluster runs, whether its group has a newer one, what failed, and which
    /// certificate expires first. Ends with 4 if a node is not ready, not configured or superseded, has not reported,
    /// or has a certificate that expires within 7 days.
    Status(FleetStatusArgs),
    /// Report the status of this node to the cluster, as each run does at its end. Sets the condition KopsConfigured of
    /// its Node, and the annotation of the certificate that expires first, with kubelet's credentials.
    Tell(FleetTellArgs),
}

#[derive(Args, Clone, Debug)]
pub struct FleetTellArgs {
    /// The machine's root.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Seconds to retry while kubelet has not registered this machine, or the API server does not answer.
    #[arg(long, alias = "patience", value_name = "SECONDS", default_value_t = 0)]
    pub timeout: u64,
    /// Report nothing. Wait until no run is at work on this machine, and uncordon the node if a run left it cordoned. A
    /// run that drains starts this command through systemd.
    #[arg(long, hide = true)]
    pub only_uncordon: bool,
}
