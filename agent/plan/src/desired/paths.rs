//! Where things are on a node. A component that needs another's file asks here, and nowhere else.

/// Directory from which kubelet runs static pods.
pub(super) const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// Kubelet's own kubeconfig.
pub(super) const KUBELET_KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
/// Kubelet's configuration file.
pub(super) const KUBELET_CONFIG: &str = "/var/lib/kubelet/kubelet.conf";
/// Flags of kubelet's unit, as an environment file.
pub(super) const KUBELET_SYSCONFIG: &str = "/etc/sysconfig/kubelet";
/// The kube-scheduler's kubeconfig (pkg/wellknownpaths).
pub(super) const KUBE_SCHEDULER_KUBECONFIG: &str = "/var/lib/kube-scheduler/kubeconfig";
/// The kube-scheduler's configuration file (pkg/wellknownpaths).
pub(super) const KUBE_SCHEDULER_CONFIG: &str = "/var/lib/kube-scheduler/config.yaml";
/// containerd's configuration file.
pub(super) const CONTAINERD_CONFIG: &str = "/etc/containerd/config.toml";
/// Directory of CNI plugins.
pub(super) const CNI_BIN: &str = "/opt/cni/bin";
/// Directory of CNI configurations.
pub(super) const CNI_CONF: &str = "/etc/cni/net.d";

/// The static pod of this name.
pub(super) fn manifest(name: &str) -> String {
    format!("{MANIFESTS}/{name}.manifest")
}

/// A component's log file.
pub(super) fn log(component: &str) -> String {
    format!("/var/log/{component}.log")
}
