//! `kops-agent controller`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use kops_agent_controller::takeover::TakeoverOptions;
use kops_agent_controller::{ControllerOptions, LabelsFrom};
use kops_agent_plan::desired::{CONTROLLER_CONF, CONTROLLER_KUBECONFIG, KUBELET_KUBECONFIG};

use super::Output;

/// The source of a node's labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LabelsFromArg {
    /// The instance group's labels in the state store, as `kops update cluster --yes` wrote them. Running nodes follow
    /// each change. Where no cloud knows the machines, labels that `kops edit ig` saved count too.
    Store,
    /// The labels that the cloud stores for the instance (tags, template or metadata), as kops-controller uses them. Use
    /// `tags` while kops-controller still runs. A rejected Node keeps its role labels. Where no cloud
    /// knows the machines, `tags` acts like `store`.
    Tags,
}

impl From<LabelsFromArg> for LabelsFrom {
    fn from(from: LabelsFromArg) -> LabelsFrom {
        match from {
            LabelsFromArg::Store => LabelsFrom::Store,
            LabelsFromArg::Tags => LabelsFrom::Tags,
        }
    }
}

#[derive(Clone, Debug, Subcommand)]
pub enum ControllerCommand {
    /// Check whether kops-agent can take over from kOps' kops-controller
    Takeover(TakeoverArgs),
}

#[derive(Args, Clone, Debug)]
pub struct TakeoverArgs {
    /// Run all checks of the takeover, and change nothing
    ///
    /// The checks: kOps release, kops-controller's configuration, RBAC rights, Lease, DNS names, port, and
    /// kops-agent-controller.service. Ends with 0 if all checks are ready, 4 if any is not ready, and 1 if a result is
    /// unknown.
    #[arg(long, required = true)]
    pub check: bool,
    /// Check the way back instead: whether machines can still bootstrap after `converge` has removed
    /// kops-agent-controller.service from this machine. `converge` makes the same check.
    #[arg(long)]
    pub back: bool,
    /// kops-controller's configuration file, as kOps writes it
    #[arg(long, value_name = "FILE", default_value = CONTROLLER_CONF)]
    pub conf: PathBuf,
    /// The controller's kubeconfig, to check its RBAC rights and to read the Lease
    #[arg(long, value_name = "FILE", default_value = CONTROLLER_KUBECONFIG)]
    pub kubeconfig: PathBuf,
    /// An administrator's kubeconfig, to list the pods of kube-system (the controller has no right to list pods)
    #[arg(long, value_name = "FILE", default_value = "/var/lib/kubectl/kubeconfig")]
    pub admin_kubeconfig: PathBuf,
    /// With --back: kubelet's kubeconfig, to find this machine's Node and its pods
    #[arg(long, value_name = "FILE", default_value = KUBELET_KUBECONFIG)]
    pub kubelet_kubeconfig: PathBuf,
    /// Read what is below URL from the folder DIR; may be given more than once.
    #[arg(long, value_name = "URL=DIR")]
    pub store_mirror: Vec<String>,
    /// Address at which kops-agent-controller.service of this machine serves /readyz
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:3985")]
    pub health: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

impl TakeoverArgs {
    pub fn options(&self) -> TakeoverOptions {
        TakeoverOptions {
            conf: self.conf.clone(),
            kubeconfig: self.kubeconfig.clone(),
            admin_kubeconfig: self.admin_kubeconfig.clone(),
            kubelet_kubeconfig: self.kubelet_kubeconfig.clone(),
            store_mirrors: self.store_mirror.clone(),
            health: self.health.clone(),
        }
    }
}

#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ControllerArgs {
    /// The subcommand. `None` runs control-plane mode.
    #[command(subcommand)]
    pub command: Option<ControllerCommand>,
    /// kops-controller's configuration file, as kOps writes it
    #[arg(long, value_name = "FILE", default_value = CONTROLLER_CONF)]
    pub conf: PathBuf,
    /// Kubeconfig for the API server. Default: the service account of this pod.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Read what is below URL from the folder DIR; may be given more than once.
    #[arg(long, value_name = "URL=DIR")]
    pub store_mirror: Vec<String>,
    /// Seconds between checks of the state store for changed instance groups
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub store_interval: u64,
    /// Source of the nodes' labels. Default: the value of KOPS_AGENT_LABELS_FROM, or else `store`.
    ///
    /// Set KOPS_AGENT_LABELS_FROM for kops-agent-controller.service in /etc/sysconfig/kops-agent-controller.
    #[arg(long, value_name = "SOURCE", value_enum)]
    pub labels_from: Option<LabelsFromArg>,
    /// Listen address for /healthz, /readyz and /metrics
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:3985")]
    pub health_listen: String,
    /// Label every Node once, then end
    ///
    /// Also sets missing spec.podCIDRs if the configuration has enableCloudIPAM. Takes no Lease, and serves no bootstrap
    /// requests or probes.
    #[arg(long)]
    pub once: bool,
    /// With --once: print the changes as a diff per Node, and change nothing
    #[arg(long, requires = "once")]
    pub dry_run: bool,
}

impl ControllerArgs {
    pub fn options(&self) -> ControllerOptions {
        ControllerOptions {
            conf: self.conf.clone(),
            kubeconfig: self.kubeconfig.clone(),
            store_mirrors: self.store_mirror.clone(),
            store_interval: Duration::from_secs(self.store_interval),
            labels_from: self.labels_from.map(LabelsFrom::from),
            health_listen: self.health_listen.clone(),
        }
    }
}
