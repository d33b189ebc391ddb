//! Machines for the tests of components. Each starts with a minimal configuration, and a test adds the
//! fields that it needs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::resolve::testing::fill_store;
use crate::resolve::{Inputs, NodeConfig, Problems, resolve};
use crate::resource::{Content, DesiredState, File, Kind, Resource, ResourceId, Unit};
use kops_agent_spec::facts::Facts;
use kops_agent_spec::{BootConfig, NodeupConfig};

#[derive(Clone)]
pub(super) struct Machine {
    boot: Value,
    config: Value,
    facts: Value,
}

impl Machine {
    /// A worker on AWS that runs Ubuntu.
    pub(super) fn node() -> Machine {
        let download = |url: &str| format!("{}@https://example.com/{url}", "0".repeat(64));
        Machine {
            boot: json!({
                "CloudProvider": "aws", "ClusterName": "c.example.com",
                "InstanceGroupName": "group", "InstanceGroupRole": "Node",
            }),
            config: json!({
                "Assets": { "amd64": [
                    download("kubelet"),
                    download("kubectl"),
                    download("ecr-credential-provider-linux-amd64"),
                    download("auth-provider-gcp"),
                    download("containerd-2.3.4-linux-amd64.tar.gz"),
                    download("runc.amd64"),
                    download("nerdctl-1.7.4-linux-amd64.tar.gz"),
                ]},
                "ClusterName": "c.example.com",
                "KubernetesVersion": "1.34.0",
                "KeypairIDs": { "kubernetes-ca": "1" },
                "KubeletConfig": { "cloudProvider": "external", "podManifestPath": "/etc/kubernetes/manifests" },
                "KubeProxy": { "image": "kube-proxy", "logLevel": 2 },
                "Networking": { "nonMasqueradeCIDR": "100.64.0.0/10" },
                "containerdConfig": { "version": "2.3.4" },
            }),
            facts: json!({
                "arch": "amd64",
                "distro": { "id": "ubuntu", "versionID": "24.04" },
                "hostname": "Host",
                "cloud": { "aws": {
                    "instanceID": "i-1", "region": "r", "availabilityZone": "r-a",
                    "localIPv4": "10.0.0.1", "localHostname": "ip-10-0-0-1.ec2.internal",
                    "networkInterfaces": { "max": 3, "ipv4PerInterface": 10 },
                }},
            }),
        }
    }

    /// A control-plane machine, otherwise like `Machine::node`.
    pub(super) fn control_plane() -> Machine {
        Machine::node().in_control_plane()
    }

    pub(super) fn in_control_plane(self) -> Machine {
        self.boot(json!({ "InstanceGroupRole": "ControlPlane" })).config(json!({
            "KeypairIDs": { "apiserver-aggregator-ca": "1", "etcd-clients-ca": "1", "service-account": "1" },
            "Networking": { "serviceClusterIPRange": "100.64.0.0/13" },
            "channelsManifest": "s3://clusters/c.example.com/manifests/kops-channels.yaml",
            "APIServerConfig": { "ClusterDNSDomain": "cluster.local" },
            "ControlPlaneConfig": { "KubeControllerManager": {}, "KubeScheduler": {} },
        }))
    }

    /// Changes the distribution of this machine.
    pub(super) fn on(self, id: &str, version: &str) -> Machine {
        self.facts(json!({ "distro": { "id": id, "versionID": version } }))
    }

    /// Changes fields in the boot config of this machine.
    pub(super) fn boot(mut self, fields: Value) -> Machine {
        merge(&mut self.boot, fields);
        self
    }

    /// Changes fields in the configuration of this machine.
    pub(super) fn config(mut self, fields: Value) -> Machine {
        merge(&mut self.config, fields);
        self
    }

    pub(super) fn facts(mut self, fields: Value) -> Machine {
        merge(&mut self.facts, fields);
        self
    }

    fn resolve(&self) -> Result<NodeConfig, Problems> {
        let facts: Facts = serde_json::from_value(self.facts.clone()).unwrap();
        let mut inputs = Inputs {
            boot: BootConfig::parse(self.boot.to_string().as_bytes(), "boot").unwrap(),
            config: NodeupConfig::parse(self.config.to_string().as_bytes(), "config").unwrap(),
            keysets: BTreeMap::new(),
            secret_names: BTreeSet::new(),
            manifests: BTreeMap::new(),
            facts,
            kops_version: None,
            archives: Default::default(),
        };
        fill_store(&mut inputs);
        resolve(inputs)
    }

    pub(super) fn problems(&self) -> String {
        self.resolve().unwrap_err().to_string()
    }

    /// The resources that `add` adds on this machine.
    pub(super) fn desired(&self, add: fn(&NodeConfig, &mut DesiredState)) -> Desired {
        let node = self.resolve().unwrap();
        let mut state = DesiredState::default();
        add(&node, &mut state);
        Desired(state.checked().unwrap())
    }
}

/// Merges fields into an object, recursively. A null removes the field.
fn merge(into: &mut Value, fields: Value) {
    match (into, fields) {
        (Value::Object(into), Value::Object(fields)) => {
            for (name, value) in fields {
                if value.is_null() {
                    into.remove(&name);
                } else {
                    merge(into.entry(name).or_insert(Value::Null), value);
                }
            }
        }
        (into, fields) => *into = fields,
    }
}

pub(super) struct Desired(pub(super) DesiredState);

impl Desired {
    /// Whether there is a resource with this id, such as `file /etc/x` or `unit kubelet.service`.
    pub(super) fn has(&self, id: &str) -> bool {
        self.0.iter().any(|(present, _)| present.to_string() == id)
    }

    pub(super) fn file(&self, path: &str) -> &File {
        match self.0.get(&ResourceId::new(Kind::File, path)) {
            Some(Resource::File(file)) => file,
            _ => panic!("there is no file {path}"),
        }
    }

    pub(super) fn text(&self, path: &str) -> &str {
        match &self.file(path).content {
            Content::Text(text) => text,
            content => panic!("{path} has no plain text but {content:?}"),
        }
    }

    /// The fields of the YAML file at this path.
    pub(super) fn yaml(&self, path: &str) -> Value {
        serde_yaml::from_str(self.text(path)).unwrap()
    }

    pub(super) fn unit(&self, name: &str) -> &Unit {
        match self.0.get(&ResourceId::new(Kind::Unit, name)) {
            Some(Resource::Unit(unit)) => unit,
            _ => panic!("there is no unit {name}"),
        }
    }

    pub(super) fn unit_text(&self, name: &str) -> &str {
        self.unit(name).text.as_deref().unwrap()
    }
}
