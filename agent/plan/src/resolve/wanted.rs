//! The inputs that a node needs besides its configuration: objects of the state store, and facts that cost a request to the cloud. The
//! binary reads these inputs before [`super::resolve`]. It leaves out objects that are missing or that the node may not read.

use std::collections::BTreeSet;

use kops_agent_spec::CloudProvider;

use super::{Inputs, containerd, kubelet};

/// Secrets that every node may use.
const COMMON_SECRETS: [&str; 1] = ["dockerconfig"];

/// Secrets of a machine with an API server (nodeup/pkg/model/kube_apiserver.go): the encryption configuration, and the static tokens that
/// the API server accepts.
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

    /// Whether the node's configuration needs data about the instance type, and the facts lack this data. Only EC2 has it
    /// (`GetMachineTypeInfo` and its callers in upup/pkg/fi/nodeup/command.go and nodeup/pkg/model/kubelet.go).
    pub fn wants_instance_type(&self) -> bool {
        let Some(aws) = self.facts.cloud.aws.as_ref() else { return false };
        let wants_limits = kubelet::derives_max_pods(&self.config) && aws.network_interfaces.is_none();
        let wants_gpu = containerd::enables_nvidia(&self.config) && aws.gpu.is_none();
        self.boot.cloud_provider == CloudProvider::Aws && (wants_limits || wants_gpu)
    }

    /// Whether the node's configuration needs the address from OpenStack's metadata service, and the facts lack this address
    /// (`getInstanceAddress` in nodeup/pkg/model/secrets.go).
    pub fn wants_address(&self) -> bool {
        self.boot.cloud_provider == CloudProvider::Openstack
            && self.boot.instance_group_role.runs_api_server()
            && self.facts.cloud.openstack.is_none()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::{BTreeMap, BTreeSet};

    use kops_agent_spec::facts::{AwsFacts, Facts, InstanceType, NetworkInterfaceLimits, OpenstackFacts};
    use kops_agent_spec::{BootConfig, NodeupConfig};

    use super::*;

    fn inputs(cloud: &str, role: &str, config: &str) -> Inputs {
        let boot = format!(
            "{{CloudProvider: {cloud}, ClusterName: c, InstanceGroupName: g, InstanceGroupRole: {role}}}"
        );
        let mut facts = Facts::default();
        facts.cloud.aws = (cloud == "aws").then(AwsFacts::default);
        Inputs {
            boot: BootConfig::parse(boot.as_bytes(), "").unwrap(),
            config: NodeupConfig::parse(config.as_bytes(), "").unwrap(),
            keysets: BTreeMap::new(),
            secret_names: BTreeSet::new(),
            manifests: BTreeMap::new(),
            facts,
            kops_version: None,
            archives: Default::default(),
        }
    }

    #[test]
    fn ec2_is_asked_only_for_missing_facts_that_matter() {
        let nvidia = "containerdConfig: {nvidiaGPU: {enabled: true}}";
        for (config, wants) in [
            ("{}", false),
            ("Networking: {amazonVPC: {}}", true),
            ("Networking: {cilium: {ipam: eni}}", true),
            ("Networking: {cilium: {ipam: kubernetes}}", false),
            ("Networking: {amazonVPC: {}}\nKubeletConfig: {maxPods: 9}", false),
            (nvidia, false),
            (&format!("NvidiaGPU: {{enabled: true}}\n{nvidia}"), true),
            (&format!("NvidiaGPU: {{enabled: false}}\n{nvidia}"), false),
            ("NvidiaGPU: {enabled: true}", false),
        ] {
            let mut node = inputs("aws", "Node", config);
            assert_eq!(node.wants_instance_type(), wants, "{config}");
            assert!(!inputs("openstack", "Node", config).wants_instance_type(), "{config}");
            let network_interfaces = NetworkInterfaceLimits { max: 3, ipv4_per_interface: 10 };
            node.facts.cloud.aws.as_mut().unwrap().complete(InstanceType { network_interfaces, gpu: false });
            assert!(!node.wants_instance_type(), "{config}");
        }
    }

    #[test]
    fn openstack_is_asked_only_on_machines_with_an_api_server() {
        let mut control_plane = inputs("openstack", "ControlPlane", "{}");
        assert!(control_plane.wants_address());
        assert!(!inputs("openstack", "Node", "{}").wants_address());
        assert!(!inputs("aws", "ControlPlane", "{}").wants_address());
        control_plane.facts.cloud.openstack = Some(OpenstackFacts::default());
        assert!(!control_plane.wants_address());
    }
}
