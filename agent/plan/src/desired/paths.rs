//! Paths on a node. If a component needs the file of another component, it takes the file's path from here. Functions take only the values
//! that decide a path, not the whole node configuration: `resolve` depends on this file through [`crate::static_pod`].

use kops_agent_spec::ContainerdConfig;

use crate::resolve::distribution::Distribution;

/// The path at which packages install kops-agent. If kops-agent is installed elsewhere, its path replaces this path in the units' texts.
pub const PACKAGED_PROGRAM: &str = "/usr/bin/kops-agent";
/// The path to which kOps' boot script writes the boot config (pkg/model/resources/nodeup.go). Texts of packaged units contain it.
pub const BOOT_CONFIG: &str = "/opt/kops/conf/kube_env.yaml";
/// Directory from which kubelet runs static pods.
pub(crate) const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// Directory of kubelet's own files, and of the volumes of pods.
pub(super) const KUBELET: &str = "/var/lib/kubelet";
pub const KUBELET_KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
pub(crate) const KUBELET_CONFIG: &str = "/var/lib/kubelet/kubelet.conf";
/// Flags of kubelet's unit, as an environment file.
pub(super) const KUBELET_SYSCONFIG: &str = "/etc/sysconfig/kubelet";
/// kubelet's configuration for its credential provider, which supplies credentials for registries.
pub(super) const KUBELET_CREDENTIAL_PROVIDER_CONFIG: &str = "/var/lib/kubelet/credential-provider.conf";
/// Name of the certificate of kubelet's server, on the machine and in the bootstrap protocol.
pub(super) const KUBELET_SERVER: &str = "kubelet-server";
/// The kubeconfig of the cluster's administrator.
pub(super) const KUBECTL_KUBECONFIG: &str = "/var/lib/kubectl/kubeconfig";
/// The kubeconfig for applying add-ons.
pub(super) const KOPS_CHANNELS_KUBECONFIG: &str = "/var/lib/kops/kubeconfig";
pub(super) const KUBE_PROXY_KUBECONFIG: &str = "/var/lib/kube-proxy/kubeconfig";
/// The configuration file of the cloud controller manager.
pub(super) const CLOUD_CONFIG: &str = "/etc/kubernetes/cloud.config";
/// The configuration file of Kubernetes' in-tree cloud provider (kOps up to 1.35).
pub(super) const IN_TREE_CLOUD_CONFIG: &str = "/etc/kubernetes/in-tree-cloud.config";
pub(crate) const KUBE_SCHEDULER_KUBECONFIG: &str = "/var/lib/kube-scheduler/kubeconfig";
/// The kube-scheduler's configuration file (pkg/wellknownpaths).
pub(crate) const KUBE_SCHEDULER_CONFIG: &str = "/var/lib/kube-scheduler/config.yaml";
/// Flags of containerd's unit, as an environment file.
pub(super) const CONTAINERD_SYSCONFIG: &str = "/etc/sysconfig/containerd";
/// Directory with the mirrors of each registry. containerd watches this directory.
pub const CONTAINERD_REGISTRIES: &str = "/etc/containerd/certs.d";
/// containerd's template for a CNI configuration. The configuration replaces the kubenet plugin.
pub(super) const CONTAINERD_CNI_TEMPLATE: &str = "/etc/containerd/config-cni.template";
/// Environment variables of the whole machine, including the egress proxy's variables.
pub(super) const ENVIRONMENT: &str = "/etc/environment";
pub(crate) const CONTAINERD_CONFIG: &str = "/etc/containerd/config.toml";
pub(super) const CNI_BIN: &str = "/opt/cni/bin";
pub(super) const CNI_CONF: &str = "/etc/cni/net.d";

pub(super) fn kubelet(distribution: &Distribution) -> String {
    format!("{}/kubelet", distribution.kubelet_bin)
}

/// Path of the cluster CA's certificates.
pub(crate) fn kubernetes_ca(distribution: &Distribution) -> String {
    format!("{}/ca.crt", distribution.srv_kubernetes)
}

pub(crate) fn kubelet_server_certificate(distribution: &Distribution) -> String {
    format!("{}/kubelet-server.crt", distribution.srv_kubernetes)
}

pub(crate) fn kubelet_server_key(distribution: &Distribution) -> String {
    format!("{}/kubelet-server.key", distribution.srv_kubernetes)
}

pub(super) fn containerd_socket(containerd: &ContainerdConfig) -> &str {
    containerd.address.as_deref().unwrap_or("/run/containerd/containerd.sock")
}

/// Path of the manifest of the static pod of this name.
pub(crate) fn manifest(name: &str) -> String {
    format!("{MANIFESTS}/{name}.manifest")
}

pub(super) fn log(component: &str) -> String {
    format!("/var/log/{component}.log")
}
