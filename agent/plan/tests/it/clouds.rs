//! A control-plane machine and a node on each cloud, for tests of whole nodes: the example cluster (`tests/example`) with the changes in
//! `tests/golden/clouds/CLOUD.yaml`.

// All modules are in one test binary, so no `pub` item is reachable from outside.
#![allow(dead_code, unreachable_pub)]

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_plan::derive::{self, AssetHashes};
use kops_agent_plan::desired::desired;
use kops_agent_plan::resolve::{Inputs, Problems, resolve};
use kops_agent_plan::resource::DesiredState;
use kops_agent_spec::digest::sha256_hex;
use kops_agent_spec::facts::Facts;
use kops_agent_spec::go_yaml;
use kops_agent_spec::kops_release::KopsRelease;
use kops_agent_spec::{
    BootConfig, Cluster, InstanceGroup, InstanceGroupRole, Keyset, NodeupConfig, parse_yaml,
};
use serde_json::{Value, json};

macro_rules! clouds {
    ($($name:literal),*) => {
        /// The name of every cloud, and the cloud's changes to the documents of `tests/example`.
        pub const CLOUDS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../tests/golden/clouds/", $name, ".yaml")))),*];
    };
}
clouds!("aws", "azure", "digitalocean", "gce", "hetzner", "linode", "metal", "openstack", "scaleway");

macro_rules! example {
    ($path:literal) => {
        include_str!(concat!("../../../../tests/example/", $path))
    };
}

/// The content of every private key in these tests. No output may contain this text.
pub const PRIVATE: &str = "a private key of this test";
/// A certificate of `service-account` with an RSA public key, like kOps' certificates.
const CERTIFICATE: &str = include_str!("../../../spec/src/keyset/testdata/rsa.pem");
const KEY_ID: &str = "7100000001";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    ControlPlane,
    Node,
}

impl Role {
    pub const ALL: [Role; 2] = [Role::ControlPlane, Role::Node];

    /// The name of the role in the names of snapshot files.
    pub fn name(self) -> &'static str {
        match self {
            Role::ControlPlane => "control-plane",
            Role::Node => "node",
        }
    }
}

/// A machine's input documents in cluster-spec mode.
#[derive(Clone, Debug)]
pub struct Machine {
    pub cluster: Value,
    pub group: Value,
    pub facts: Value,
    /// Addresses of the API's load balancer, which only the cloud knows.
    pub api_server_addresses: Vec<String>,
}

/// A machine's input documents in nodeup-config mode.
#[derive(Clone, Debug)]
pub struct Derived {
    pub boot: Value,
    pub config: Value,
    pub facts: Value,
}

impl Machine {
    pub fn new(cloud: &str, role: Role) -> Machine {
        let (_, changes) = CLOUDS.iter().find(|(name, _)| *name == cloud).unwrap();
        let changes = yaml(changes);
        let (section, group, facts) = match role {
            Role::ControlPlane => (
                "controlPlane",
                example!("store/instancegroup/control-plane-eu-west-1a"),
                example!("machines/control-plane-eu-west-1a/facts.yaml"),
            ),
            Role::Node => {
                ("node", example!("store/instancegroup/nodes"), example!("machines/nodes/facts.yaml"))
            }
        };
        let changed = |text: &str, changes: &Value| {
            let mut document = yaml(text);
            merge(&mut document, changes);
            document
        };
        let mut cluster = changed(example!("store/cluster-completed.spec"), &changes["cluster"]);
        let control_plane = changes["controlPlane"]["group"].pointer("/metadata/name");
        for etcd in cluster["spec"]["etcdClusters"].as_array_mut().unwrap() {
            if let Some(name) = control_plane {
                etcd["etcdMembers"][0]["instanceGroup"] = name.clone();
            }
        }
        Machine {
            cluster,
            group: changed(group, &changes[section]["group"]),
            facts: changed(facts, &changes[section]["facts"]),
            api_server_addresses: serde_json::from_value(changes["apiServerAddresses"].clone())
                .unwrap_or_default(),
        }
    }

    /// Derives the documents that kOps would write for this machine.
    pub fn derive(&self) -> Result<Derived, String> {
        self.derive_from(&document(&self.cluster), &document(&self.group))
    }

    /// Derives the documents from the texts of a cluster and a group.
    pub fn derive_from(&self, cluster: &str, group: &str) -> Result<Derived, String> {
        let cluster = Cluster::parse(cluster.as_bytes(), "cluster").map_err(text)?;
        let group = InstanceGroup::parse(group.as_bytes(), "group").map_err(text)?;
        let keysets = derive::needed_files(&cluster, &group)
            .keysets
            .into_iter()
            .map(|id| (id.clone(), keyset(&id, KEY_ID)))
            .collect();
        let inputs = derive::Inputs {
            cluster: &cluster,
            user_cluster: Some(&cluster),
            instance_group: &group,
            release: KopsRelease::NEWEST,
            kops_version: None,
            roles: &BTreeSet::from([InstanceGroupRole::ControlPlane, InstanceGroupRole::Node]),
            keysets: &keysets,
            secrets: &BTreeMap::new(),
            cluster_addons: None,
            bootstrap_channel: Some("{kind: Addons, metadata: {name: bootstrap}, spec: {addons: []}}"),
            addon_manifests: &BTreeMap::new(),
            asset_hashes: &HashOfUrl,
            machine_type: None,
            machine_type_has_gpu: None,
            worker_kubernetes_version: None,
            api_server_addresses: &self.api_server_addresses,
            etcd_addresses: &[],
        };
        derive::asset_urls(&inputs).map_err(text)?;
        let config = go_yaml::to_string(&derive::nodeup_config(&inputs).map_err(text)?);
        let hash = NodeupConfig::hash(config.as_bytes());
        let boot = derive::boot_config(&inputs, &hash).map_err(text)?;
        Ok(Derived {
            boot: serde_json::to_value(boot).unwrap(),
            config: yaml(&config),
            facts: self.facts.clone(),
        })
    }

    pub fn decide(&self) -> Result<DesiredState, String> {
        self.derive()?.decide()
    }
}

impl Derived {
    pub fn decide(&self) -> Result<DesiredState, String> {
        decide(&document(&self.boot), &document(&self.config), &document(&self.facts))
    }
}

/// Decides the desired state of the node with this boot config, nodeupconfig and facts. Makes the keys and manifests that these documents
/// name.
pub fn decide(boot: &str, config: &str, facts: &str) -> Result<DesiredState, String> {
    let mut config = NodeupConfig::parse(config.as_bytes(), "nodeupconfig.yaml").map_err(text)?;
    let boot = BootConfig::parse(boot.as_bytes(), "kube_env.yaml").map_err(text)?;
    if let Some(server) = &boot.config_server {
        config.cas.entry("kubernetes-ca".into()).or_insert_with(|| server.ca_certificates.clone());
    }
    let mut inputs = Inputs {
        boot,
        config,
        keysets: BTreeMap::new(),
        secret_names: BTreeSet::new(),
        manifests: BTreeMap::new(),
        facts: parse_yaml::<Facts>(facts.as_bytes(), "facts.yaml").map_err(text)?,
        kops_version: None,
        archives: Default::default(),
    };
    inputs.keysets =
        inputs.config.keypair_ids.iter().map(|(name, id)| (name.clone(), keyset(name, id))).collect();
    inputs.secret_names = inputs.wanted_secrets();
    inputs.secret_names.remove("dockerconfig");
    inputs.manifests =
        inputs.wanted_manifests().into_iter().map(|url| (url.clone(), manifest(&url).to_owned())).collect();
    let node = resolve(inputs).map_err(|problems: Problems| problems.to_string())?;
    desired(&node).map_err(|conflicts| format!("{conflicts:?}"))
}

/// Merges changes into a document: mappings merge field by field, and null removes a field.
pub fn merge(into: &mut Value, changes: &Value) {
    match (into, changes) {
        (Value::Object(into), Value::Object(changes)) => {
            for (name, change) in changes {
                if change.is_null() {
                    into.remove(name);
                } else {
                    merge(into.entry(name).or_insert(Value::Null), change);
                }
            }
        }
        (into @ Value::Null, Value::Object(_)) => {
            *into = json!({});
            merge(into, changes);
        }
        (into, changes) => *into = changes.clone(),
    }
}

/// Made-up hashes. The hash of each file is the hash of the file's URL, so that a test detects swapped files.
pub struct HashOfUrl;

impl AssetHashes for HashOfUrl {
    fn sha256(&self, _: &str, download_url: &str) -> Option<String> {
        Some(hash_of_url(download_url))
    }
}

pub fn hash_of_url(url: &str) -> String {
    sha256_hex(url.as_bytes())
}

/// The certificate of a keyset as PEM. The certificates of two keysets differ only in the names of the issuer and the subject, so that a
/// test detects swapped certificates. Their signatures are invalid, but the code under test does not check the signatures.
pub fn certificate(keyset: &str) -> String {
    const NAME: &[u8] = b"service-account";
    let base64: String = CERTIFICATE.lines().filter(|line| !line.starts_with('-')).collect();
    let mut der = STANDARD.decode(base64).unwrap();
    let name = format!("{keyset:->width$}", width = NAME.len());
    let name = &name.as_bytes()[name.len() - NAME.len()..];
    let places: Vec<usize> =
        der.windows(NAME.len()).enumerate().filter(|(_, bytes)| *bytes == NAME).map(|(at, _)| at).collect();
    assert_eq!(places.len(), 2, "issuer and subject");
    places.iter().for_each(|at| der[*at..at + NAME.len()].copy_from_slice(name));
    let base64 = STANDARD.encode(der);
    let lines: Vec<&str> =
        base64.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

fn keyset(name: &str, id: &str) -> Keyset {
    let document = json!({
        "kind": "Keyset",
        "metadata": {"name": name},
        "spec": {"primaryId": id, "type": "Keypair", "keys": [{
            "id": id,
            "publicMaterial": STANDARD.encode(certificate(name)),
            "privateMaterial": STANDARD.encode(PRIVATE),
        }]},
    });
    Keyset::parse(document.to_string().as_bytes(), "keyset.yaml").unwrap()
}

fn manifest(url: &str) -> &'static str {
    match url {
        _ if url.contains("/etcd/events-") => {
            example!("store/manifests/etcd/events-control-plane-eu-west-1a.yaml")
        }
        _ if url.contains("/etcd/") => example!("store/manifests/etcd/main-control-plane-eu-west-1a.yaml"),
        _ if url.contains("healthcheck") => {
            example!("store/manifests/static/kube-apiserver-healthcheck.yaml")
        }
        _ => example!("store/manifests/channels/kops-channels.yaml"),
    }
}

/// Formats a document in YAML, as kOps does. With JSON, the tests would miss errors with the character NEL (U+0085), which is a line break
/// only in YAML.
fn document(value: &Value) -> String {
    go_yaml::value_to_string(value)
}

fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap()
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
