//! What of the state store a node's decisions need besides its configuration. The binary reads these
//! before [`super::resolve`]; what a node may not read, or what is not there, is simply left out.

use std::collections::BTreeSet;

use super::Inputs;

/// Secrets that any node may have.
const COMMON_SECRETS: [&str; 1] = ["dockerconfig"];

/// Secrets of a machine with an API server (nodeup/pkg/model/kube_apiserver.go): the encryption
/// configuration, and the tokens that the API server knows.
const API_SERVER_SECRETS: [&str; 10] = [
    "admin",
    "encryptionconfig",
    "kube",
    "kube-proxy",
    "kubelet",
    "system:controller_manager",
    "system:dns",
    "system:logging",
    "system:monitoring",
    "system:scheduler",
];

impl Inputs {
    /// The keysets whose keys or certificates this node may use.
    pub fn wanted_keysets(&self) -> BTreeSet<String> {
        self.config.keypair_ids.keys().cloned().collect()
    }

    /// The secrets that this node may use.
    pub fn wanted_secrets(&self) -> BTreeSet<String> {
        let runs_api_server = self.boot.instance_group_role.runs_api_server();
        let api_server_secrets: &[&str] = if runs_api_server { &API_SERVER_SECRETS } else { &[] };
        COMMON_SECRETS.iter().chain(api_server_secrets).map(|name| (*name).to_owned()).collect()
    }

    /// The manifests that this node runs: URLs, or paths below the cluster's folder.
    pub fn wanted_manifests(&self) -> BTreeSet<String> {
        let config = &self.config;
        config
            .etcd_manifests
            .iter()
            .chain(Some(&config.channels_manifest).filter(|manifest| !manifest.is_empty()))
            .chain(config.static_manifests.iter().map(|manifest| &manifest.path))
            .cloned()
            .collect()
    }
}
