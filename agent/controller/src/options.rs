//! Options of control-plane mode.

use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// kops-controller's configuration file.
    pub conf: PathBuf,
    /// The kubeconfig for the API server. If `None`, the pod's service account is used.
    pub kubeconfig: Option<PathBuf>,
    /// Folders to read in place of URLs, as `URL=DIR`.
    pub store_mirrors: Vec<String>,
    /// The interval between checks of the state store for changed instance groups.
    pub store_interval: Duration,
    /// The source of the nodes' labels. `None` means the value of `KOPS_AGENT_LABELS_FROM`, or else the store.
    pub labels_from: Option<LabelsFrom>,
    /// The address at which the process answers probes.
    pub health_listen: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelsFrom {
    /// The instance group's labels in the state store.
    #[default]
    Store,
    /// The labels that the cloud stores for the instance. A rejected Node keeps its role labels.
    Tags,
}
