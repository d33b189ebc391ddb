//! The command line of control-plane mode.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use kops_agent_process::output::Output;

/// What decides the labels of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LabelsFrom {
    /// What `kops update cluster --yes` has applied; a node that runs follows it.
    #[default]
    Store,
    /// What the cloud notes of the instance, as kOps' kops-controller decides it: while both take turns by the Lease.
    /// A Node that is not believed, which kops-controller labels all the same, is left as it is.
    Tags,
}

/// What can be asked of control-plane mode other than to run.
#[derive(Clone, Debug, Subcommand)]
pub enum ControllerCommand {
    /// Say whether kops-agent can take over from kOps' kops-controller.
    Takeover(TakeoverArgs),
}

/// Arguments of `controller takeover`.
#[derive(Args, Clone, Debug)]
pub struct TakeoverArgs {
    /// Look whether all is ready for it: DNS names, the port, the Lease and rights. Nothing is changed. Ends with 0 where it is,
    /// 4 where something is not, 1 where something cannot be told.
    #[arg(long, required = true)]
    pub check: bool,
    /// kops-controller's configuration, as kOps writes it.
    #[arg(long, value_name = "FILE", default_value = "/etc/kubernetes/kops-controller/config.yaml")]
    pub conf: PathBuf,
    /// How the controller reaches the API server; its rights are looked at.
    #[arg(long, value_name = "FILE", default_value = "/etc/kubernetes/kops-controller/kubeconfig")]
    pub kubeconfig: PathBuf,
    /// How an administrator reaches the API server and may list pods, which the controller may not.
    #[arg(long, value_name = "FILE", default_value = "/var/lib/kubectl/kubeconfig")]
    pub admin_kubeconfig: PathBuf,
    /// Read what is below URL from the folder DIR; may be given more than once.
    #[arg(long, value_name = "URL=DIR")]
    pub store_mirror: Vec<String>,
    /// Where the service of this machine answers /readyz.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:3985")]
    pub health: String,
    /// How the result is printed.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `controller`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ControllerArgs {
    /// Something else than to run.
    #[command(subcommand)]
    pub command: Option<ControllerCommand>,
    /// kops-controller's configuration, as kOps writes it.
    #[arg(long, value_name = "FILE", default_value = "/etc/kubernetes/kops-controller/config.yaml")]
    pub conf: PathBuf,
    /// How the API server is reached; without it, as a pod of the cluster.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Read what is below URL from the folder DIR; may be given more than once.
    #[arg(long, value_name = "URL=DIR")]
    pub store_mirror: Vec<String>,
    /// After how many seconds the state store is looked at again for changed instance groups.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub store_interval: u64,
    /// What decides the labels of a node. Without this, KOPS_AGENT_LABELS_FROM says it, which the service finds in
    /// /etc/sysconfig/kops-agent-controller; else `store`.
    #[arg(long, value_name = "SOURCE", value_enum)]
    pub labels_from: Option<LabelsFrom>,
    /// Where /healthz, /readyz and /metrics are answered.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:3985")]
    pub health_listen: String,
    /// Look at every Node once, and end.
    #[arg(long)]
    pub once: bool,
    /// With --once: print what would change, as a diff per node, and change nothing.
    #[arg(long, requires = "once")]
    pub dry_run: bool,
}
