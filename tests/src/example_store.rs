//! The example cluster as files: the state store as kOps leaves it, and for each machine its boot config and
//! its observed facts.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::example_keys::{Keyset, TOKENS, make_keysets, make_token_file};
use crate::stand_ins::Releases;

pub const CLUSTER: &str = "demo.example.com";
/// The bucket that contains the cluster's store.
pub const BUCKET: &str = "clusters.example.com";
/// The URL of the cluster's folder in the store.
pub const CONFIG_BASE: &str = "s3://clusters.example.com/demo.example.com";
/// The region of the cluster and its bucket.
pub const REGION: &str = "eu-west-1";
/// The instance group of the control plane.
pub const CONTROL_PLANE: &str = "control-plane-eu-west-1a";
/// The instance group of the workers.
pub const NODES: &str = "nodes";

macro_rules! specs {
    ($folder:literal: $($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../example/", $folder, "/", $path)))),*]
    };
}

const STORE: &[(&str, &str)] = specs!("store":
    "addons/bootstrap-channel.yaml",
    "addons/kops-controller.addons.k8s.io/k8s-1.16.yaml",
    "backups/etcd/events/control/etcd-cluster-spec",
    "backups/etcd/main/control/etcd-cluster-spec",
    "cluster-completed.spec",
    "config",
    "igconfig/control-plane/control-plane-eu-west-1a/nodeupconfig.yaml",
    "igconfig/node/nodes/nodeupconfig.yaml",
    "instancegroup/control-plane-eu-west-1a",
    "instancegroup/nodes",
    "kops-version.txt",
    "manifests/channels/kops-channels.yaml",
    "manifests/etcd/events-control-plane-eu-west-1a.yaml",
    "manifests/etcd/main-control-plane-eu-west-1a.yaml",
    "manifests/static/kube-apiserver-healthcheck.yaml",
);

const FACTS: &[(&str, &str)] = specs!("machines":
    "control-plane-eu-west-1a/facts.yaml",
    "nodes/facts.yaml",
);

/// The folder with the example's files.
#[derive(Clone, Debug)]
pub struct ExampleStore {
    folder: PathBuf,
}

impl ExampleStore {
    /// Writes the example to `folder`, with new keys and tokens. If `mirror` is set, the Cluster has this URL as the source of all
    /// downloads (`assets.fileRepository`).
    pub fn write(folder: &Path, mirror: Option<&str>) -> anyhow::Result<ExampleStore> {
        ExampleStore::write_with_keys(folder, mirror, &make_keysets()?)
    }

    /// Like [`ExampleStore::write`], with these keys. The generation of new keys takes seconds in a build without optimization.
    pub fn write_with_keys(
        folder: &Path,
        mirror: Option<&str>,
        keysets: &[Keyset],
    ) -> anyhow::Result<ExampleStore> {
        let example = ExampleStore { folder: folder.to_owned() };
        let cluster = example.cluster_folder();
        for (path, text) in STORE {
            let text = match (*path, mirror) {
                ("config" | "cluster-completed.spec", Some(mirror)) => &with_file_repository(text, mirror)?,
                _ => *text,
            };
            write_file(&cluster.join(path), text)?;
        }
        for keyset in keysets {
            write_file(&cluster.join("pki/private").join(&keyset.name).join("keyset.yaml"), &keyset.yaml())?;
        }
        for token in TOKENS {
            write_file(&cluster.join("secrets").join(token), &make_token_file()?)?;
        }
        example.write_machines(keysets)?;
        Ok(example)
    }

    fn write_machines(&self, keysets: &[Keyset]) -> anyhow::Result<()> {
        for (path, facts) in FACTS {
            write_file(&self.folder.join("machines").join(path), facts)?;
        }
        let ca = keysets.iter().find(|keyset| keyset.name == "kubernetes-ca").context("no kubernetes-ca")?;
        write_file(&self.kube_env(CONTROL_PLANE), &control_plane_kube_env())?;
        write_file(&self.kube_env(NODES), &nodes_kube_env(&ca.certificate))
    }

    /// Writes the configuration that `kops update cluster` derives for the group. Returns the configuration's `NodeupConfigHash`. If a
    /// machine's boot config contains this hash, the machine is pinned to the configuration.
    pub fn write_nodeup_config(&self, group: &str, config: &str) -> anyhow::Result<String> {
        let role = if group == CONTROL_PLANE { "control-plane" } else { "node" };
        let folder = self.cluster_folder().join("igconfig").join(role).join(group);
        write_file(&folder.join("nodeupconfig.yaml"), config)?;
        Ok(STANDARD.encode(Sha256::digest(config.as_bytes())))
    }

    /// The folder whose subfolders are buckets.
    pub fn buckets(&self) -> PathBuf {
        self.folder.join("store")
    }

    /// The cluster's folder in the store, at [`CONFIG_BASE`].
    pub fn cluster_folder(&self) -> PathBuf {
        self.buckets().join(BUCKET).join(CLUSTER)
    }

    /// The boot config of a machine of this instance group.
    pub fn kube_env(&self, group: &str) -> PathBuf {
        self.folder.join("machines").join(group).join("kube_env.yaml")
    }

    /// The file of facts that were observed on a machine of this instance group.
    pub fn facts(&self, group: &str) -> PathBuf {
        self.folder.join("machines").join(group).join("facts.yaml")
    }
}

/// The releases that machines of the example's Cluster download.
pub fn releases() -> Releases {
    Releases {
        kubernetes: "1.34.2".to_owned(),
        containerd: "2.3.4".to_owned(),
        runc: "1.4.3".to_owned(),
        cni_plugins: "1.7.1".to_owned(),
        cloud_provider_aws: "1.31.7".to_owned(),
    }
}

/// The releases that machines of the example's Cluster download, if kOps before 1.37 wrote the store.
pub fn releases_before_1_37() -> Releases {
    Releases { cni_plugins: "1.6.2".to_owned(), ..releases() }
}

fn with_file_repository(cluster: &str, mirror: &str) -> anyhow::Result<String> {
    const NEXT_FIELD: &str = "\n  authorization:\n";
    ensure!(cluster.matches(NEXT_FIELD).count() == 1, "the example's Cluster has no spec.authorization");
    Ok(cluster.replace(NEXT_FIELD, &format!("\n  assets:\n    fileRepository: {mirror}{NEXT_FIELD}")))
}

fn control_plane_kube_env() -> String {
    format!(
        "CloudProvider: aws\nClusterName: {CLUSTER}\nConfigBase: {CONFIG_BASE}\n\
         InstanceGroupName: {CONTROL_PLANE}\nInstanceGroupRole: ControlPlane\n"
    )
}

fn nodes_kube_env(kubernetes_ca: &str) -> String {
    let certificates: String = kubernetes_ca.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "CloudProvider: aws\nClusterName: {CLUSTER}\nConfigServer:\n  CACertificates: |\n{certificates}  servers:\n  \
         - https://kops-controller.internal.{CLUSTER}:3988/\nInstanceGroupName: {NODES}\nInstanceGroupRole: Node\n"
    )
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let write = || {
        fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        fs::write(path, text)
    };
    write().with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_yaml::Value;

    use crate::example_keys::KEYSETS;

    use super::*;

    fn read(path: &Path) -> Value {
        serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn the_store_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let example = ExampleStore::write(folder.path(), Some("http://127.0.0.1:1")).unwrap();
        let cluster = example.cluster_folder();
        for file in ["config", "cluster-completed.spec"] {
            assert_eq!(read(&cluster.join(file))["spec"]["assets"]["fileRepository"], "http://127.0.0.1:1");
        }
        for keyset in KEYSETS {
            let keyset_file = read(&cluster.join(format!("pki/private/{keyset}/keyset.yaml")));
            assert_eq!(keyset_file["metadata"]["name"], keyset);
        }
        for token in TOKENS {
            assert!(
                fs::read_to_string(cluster.join("secrets").join(token)).unwrap().starts_with("{\"Data\":\"")
            );
        }
        for group in [CONTROL_PLANE, NODES] {
            assert_eq!(read(&example.kube_env(group))["InstanceGroupName"], group);
            assert!(!read(&example.facts(group))["cloud"]["aws"]["instanceID"].is_null());
        }
    }

    #[test]
    fn the_specs_agree_with_each_other() {
        let cluster: Value =
            serde_yaml::from_str(include_str!("../example/store/cluster-completed.spec")).unwrap();
        let config: Value = serde_yaml::from_str(include_str!("../example/store/config")).unwrap();
        assert_eq!(cluster["metadata"]["name"], CLUSTER);
        assert_eq!(cluster["spec"]["configBase"], CONFIG_BASE);
        for field in ["configBase", "kubernetesVersion", "networkCIDR", "subnets", "iam", "topology"] {
            assert_eq!(cluster["spec"][field], config["spec"][field], "{field}");
        }
        let releases = releases();
        assert_eq!(cluster["spec"]["kubernetesVersion"], releases.kubernetes.as_str());
        assert_eq!(cluster["spec"]["containerd"]["version"], releases.containerd.as_str());
        assert_eq!(cluster["spec"]["containerd"]["runc"]["version"], releases.runc.as_str());
    }

    #[test]
    fn every_manifest_of_the_cluster_exists() {
        let cluster: Value =
            serde_yaml::from_str(include_str!("../example/store/cluster-completed.spec")).unwrap();
        let paths: Vec<_> = STORE.iter().map(|(path, _)| *path).collect();
        for etcd in cluster["spec"]["etcdClusters"].as_sequence().unwrap() {
            let manifest = format!("manifests/etcd/{}-{CONTROL_PLANE}.yaml", etcd["name"].as_str().unwrap());
            assert!(paths.contains(&manifest.as_str()), "{manifest}");
        }
    }
}
