//! What the API server is called, and where its own files are.

use crate::resolve::NodeConfig;

/// Its pod, its directory and its log.
pub(super) const NAME: &str = "kube-apiserver";

/// Where its keys and certificates are.
pub(super) fn directory(node: &NodeConfig) -> String {
    node.srv_kubernetes(NAME)
}

/// One of its keys, certificates or secret files.
pub(super) fn file(node: &NodeConfig, name: &str) -> String {
    format!("{}/{name}", directory(node))
}
