//! Reads and writes the Node of this machine, with kubelet's credentials.

mod drain;
mod orders;
mod statement;

pub use drain::{OwnNode, Remaining};
pub use orders::{Orders, retried};
pub use statement::{FIELD_MANAGER, Told, Untold, tell, withdraw_warnings};

#[cfg(test)]
mod testing {
    #![allow(clippy::unwrap_used)]
    use std::path::PathBuf;

    use tempfile::TempDir;

    /// A kubeconfig for a server. The name in its client certificate is `user`.
    pub(super) fn kubeconfig(server: &str, user: &str) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, kops_agent_tests::kubeconfig::kubeconfig(server, user).unwrap()).unwrap();
        (folder, path)
    }
}
