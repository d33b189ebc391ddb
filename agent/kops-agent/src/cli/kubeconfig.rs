//! Flags for the API server that a command asks.

use std::path::{Path, PathBuf};

use clap::Args;

use kops_agent_kube::Chosen;
use kops_agent_spec::failure::Failure;

/// The kubeconfig, and the context in it.
#[derive(Args, Clone, Debug)]
pub struct KubeconfigArgs {
    /// Kubeconfig for the API server. Default: the files in KUBECONFIG, merged as in kubectl, or else ~/.kube/config.
    ///
    /// If KUBECONFIG is not set, `addons` commands use /var/lib/kubectl/kubeconfig if it exists.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig. Default: its current-context.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

impl KubeconfigArgs {
    /// Chooses the kubeconfig: the flag, `KUBECONFIG`, the machine's own if it exists, or `~/.kube/config`.
    pub fn choose(&self, of_machine: Option<&Path>) -> Result<Chosen, Failure> {
        let variable = |name: &str| std::env::var_os(name);
        Chosen::find(self.kubeconfig.as_deref(), self.context.as_deref(), of_machine, variable)
    }
}
