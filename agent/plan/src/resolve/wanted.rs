//! What a node's decisions need besides its configuration: of the state store, and of facts those that cost a call to
//! the cloud. The binary reads these before [`super::resolve`]; what of the store a node may not read, or what is not
//! there, is simply left out.

use std::collections::BTreeSet;

use crate::spec::CloudProvider;

use super::{Inputs, containerd, kubelet};

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

    /// Whether this node is decided by something that only EC2 knows of the instance's type
    /// (`GetMachineTypeInfo` and its callers in upup/pkg/fi/nodeup/command.go and nodeup/pkg/model/kubelet.go), and that
    /// the facts do not have yet.
    pub fn wants_instance_type(&self) -> bool {
        let Some(aws) = self.facts.cloud.aws.as_ref() else { return false };
        let wants_limits = kubelet::derives_max_pods(&self.config) && aws.network_interfaces.is_none();
        let wants_gpu = containerd::enables_nvidia(&self.config) && aws.gpu.is_none();
        self.boot.cloud_provider == CloudProvider::Aws && (wants_limits || wants_gpu)
    }

    /// Whether this node is decided by the address that OpenStack's metadata service tells (`getInstanceAddress` in
    /// nodeup/pkg/model/secrets.go), and that the facts do not have yet.
    pub fn wants_openstack_address(&self) -> bool {
        self.boot.cloud_provider == CloudProvider::Openstack
            && self.boot.instance_group_role.runs_api_server()
            && self.facts.cloud.openstack.is_none()
    }
}
