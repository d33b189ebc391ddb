//! The API server's name, and the paths of its own files.

use crate::resolve::NodeConfig;

/// Name of its pod, its directory and its log.
pub(super) const NAME: &str = "kube-apiserver";

/// The directory of its keys and certificates.
pub(super) fn directory(node: &NodeConfig) -> String {
    node.srv_kubernetes(NAME)
}

/// The path of one of its keys, certificates or secret files.
pub(super) fn file(node: &NodeConfig, name: &str) -> String {
    format!("{}/{name}", directory(node))
}
