//! The API server's name, and the paths of its own files.

use crate::resolve::NodeConfig;

/// Name of the API server's pod, directory and log.
pub(super) const NAME: &str = "kube-apiserver";

/// The directory of the API server's keys and certificates.
pub(super) fn directory(node: &NodeConfig) -> String {
    node.srv_kubernetes(NAME)
}

/// The path of a key, a certificate or a secret file of the API server.
pub(super) fn file(node: &NodeConfig, name: &str) -> String {
    format!("{}/{name}", directory(node))
}
