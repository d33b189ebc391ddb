//! Nodes for tests: a small cluster `c.example.com`, which each test changes as it needs.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use kops_agent_spec::facts::Facts;
use kops_agent_spec::{BootConfig, InstanceGroupRole, Keyset, NodeupConfig};

use super::{Inputs, NodeConfig, Problems, resolve};

/// A certificate of `service-account`, with an RSA key.
pub(crate) const RSA_CERTIFICATE: &str = include_str!("../../../spec/src/keyset/testdata/rsa.pem");
/// A certificate of `kubernetes-ca`, with an EC key.
pub(crate) const EC_CERTIFICATE: &str = include_str!("../../../spec/src/keyset/testdata/ec.pem");

const BOOT: &str = "
CloudProvider: metal
ConfigBase: s3://clusters/c.example.com
ClusterName: c.example.com
InstanceGroupName: control-plane
InstanceGroupRole: ControlPlane
";

const CONFIG: &str = "
ClusterName: c.example.com
KubernetesVersion: 1.34.0
Assets:
  amd64:
  - https://dl.k8s.io/release/v1.34.0/bin/linux/amd64/kubelet
  - https://dl.k8s.io/release/v1.34.0/bin/linux/amd64/kubectl
  - https://github.com/containerd/containerd/releases/download/v2.1.4/containerd-2.1.4-linux-amd64.tar.gz
  - https://github.com/opencontainers/runc/releases/download/v1.3.0/runc.amd64
containerdConfig: {version: 2.1.4, runc: {version: 1.3.0}}
CAs: {kubernetes-ca: CA\\n, etcd-clients-ca: ETCD CA\\n, apiserver-aggregator-ca: AGGREGATOR CA\\n}
EtcdClusterNames: [main]
etcdManifests: [s3://clusters/c.example.com/manifests/etcd/main.yaml]
channelsManifest: s3://clusters/c.example.com/manifests/kops-channels.yaml
staticManifests: [{key: kube-apiserver-healthcheck, path: manifests/static/kube-apiserver-healthcheck.yaml}]
Networking: {nonMasqueradeCIDR: 100.64.0.0/10, serviceClusterIPRange: 100.64.0.0/13}
APIServerConfig:
  ClusterDNSDomain: cluster.local
  ServiceAccountPublicKeys: PUBLIC KEY
  API: {dns: {}, publicName: api.c.example.com}
  KubeAPIServer: {image: 'registry.k8s.io/kube-apiserver:v1.34.0', securePort: 443}
ControlPlaneConfig:
  KubeControllerManager: {image: 'registry.k8s.io/kube-controller-manager:v1.34.0'}
  KubeScheduler: {image: 'registry.k8s.io/kube-scheduler:v1.34.0'}
";

const KEYSETS: [&str; 6] = [
    "apiserver-aggregator-ca",
    "etcd-clients-ca",
    "etcd-manager-ca-main",
    "etcd-peers-ca-main",
    "kubernetes-ca",
    "service-account",
];

/// Makes a keyset. Each item has an id, a certificate, and the rest of its YAML.
pub(crate) fn keyset_of(name: &str, items: &[(&str, &str, &str)]) -> Keyset {
    let items: String = items
        .iter()
        .map(|(id, certificate, more)| {
            let public = STANDARD.encode(certificate);
            let private = STANDARD.encode(format!("{name}'s private key"));
            format!(
                "  - {{id: \"{id}\", publicMaterial: \"{public}\", privateMaterial: \"{private}\"{more}}}\n"
            )
        })
        .collect();
    let text = format!(
        "apiVersion: kops.k8s.io/v1alpha2\nkind: Keyset\nmetadata: {{name: {name}}}\n\
         spec:\n  type: Keypair\n  keys:\n{items}"
    );
    Keyset::parse(text.as_bytes(), "keyset.yaml").unwrap()
}

/// Adds to the store every keypair and manifest that the configuration names.
pub(crate) fn fill_store(inputs: &mut Inputs) {
    for (keyset, id) in &inputs.config.keypair_ids {
        inputs.keysets.insert(keyset.clone(), keyset_of(keyset, &[(id, RSA_CERTIFICATE, "")]));
    }
    for url in inputs.wanted_manifests() {
        let pod = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: stored\n    new: true\n  \
                   volumes:\n  - name: stored-volume\n";
        inputs.manifests.insert(url, pod.into());
    }
}

pub(crate) fn control_plane(change: impl FnOnce(&mut Inputs)) -> NodeConfig {
    resolved(change).unwrap_or_else(|problems| panic!("{problems}"))
}

pub(crate) fn api_server(change: impl FnOnce(&mut Inputs)) -> NodeConfig {
    control_plane(|inputs| {
        inputs.boot.instance_group_role = InstanceGroupRole::APIServer;
        inputs.config.control_plane_config = None;
        change(inputs);
    })
}

/// The problems of a control-plane machine after `change`.
pub(crate) fn problems(change: impl FnOnce(&mut Inputs)) -> String {
    resolved(change).unwrap_err().to_string()
}

/// Resolves a control-plane machine after `change`. Returns the machine, or its problems.
pub(crate) fn resolved(change: impl FnOnce(&mut Inputs)) -> Result<NodeConfig, Problems> {
    let mut inputs = Inputs {
        boot: BootConfig::parse(BOOT.as_bytes(), "kube_env.yaml").unwrap(),
        config: NodeupConfig::parse(CONFIG.as_bytes(), "nodeupconfig.yaml").unwrap(),
        keysets: BTreeMap::new(),
        secret_names: BTreeSet::new(),
        manifests: BTreeMap::new(),
        facts: Facts { hostname: "node-1".into(), ..Facts::default() },
        kops_version: None,
        archives: Default::default(),
    };
    inputs.facts.distro.id = "debian".into();
    inputs.facts.distro.version_id = "12".into();
    inputs.config.keypair_ids = KEYSETS.map(|keyset| (keyset.to_owned(), "7".to_owned())).into();
    fill_store(&mut inputs);
    change(&mut inputs);
    resolve(inputs)
}
