//! A small store for unit tests.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use super::{Inputs, KnownHashes};
use kops_agent_spec::kops_release::KopsRelease;
use kops_agent_spec::{Cluster, InstanceGroup, InstanceGroupRole, Keyset, Secret};

/// A cluster and a group, with the other inputs of a derivation.
pub(super) struct Store {
    pub(super) cluster: Cluster,
    pub(super) user_cluster: Option<Cluster>,
    pub(super) group: InstanceGroup,
    pub(super) release: KopsRelease,
    pub(super) kops_version: Option<String>,
    pub(super) roles: BTreeSet<InstanceGroupRole>,
    pub(super) keysets: BTreeMap<String, Keyset>,
    pub(super) secrets: BTreeMap<String, Secret>,
    pub(super) manifests: BTreeMap<String, String>,
    pub(super) hashes: KnownHashes,
}

const CONTAINERD: &str = "containerd: {version: 2.1.4, runc: {version: 1.3.0}}";

impl Store {
    /// Makes a store from entries of the cluster's spec and of the group's spec, in v1alpha2. Missing entries have defaults: AWS, a
    /// Kubernetes version, containerd, an address range.
    pub(super) fn new(cluster: &str, group: &str) -> Store {
        let mut spec: serde_json::Map<String, serde_json::Value> = serde_yaml::from_str(&format!(
            "{{configBase: 's3://clusters/c.example.com', kubernetesVersion: 1.34.1, cloudProvider: aws, networking: {{cni: {{}}}}, \
             nonMasqueradeCIDR: 100.64.0.0/10, {CONTAINERD}}}"
        ))
        .unwrap();
        let given: serde_json::Map<String, serde_json::Value> =
            serde_yaml::from_str(&format!("{{{cluster}}}")).unwrap();
        for (key, value) in given {
            match (spec.get_mut(&key), value) {
                (Some(serde_json::Value::Object(there)), serde_json::Value::Object(given))
                    if key == "containerd" =>
                {
                    there.extend(given)
                }
                (_, value) => drop(spec.insert(key, value)),
            }
        }
        let labels = spec.remove("labels").unwrap_or_default();
        let cluster =
            serde_json::json!({"metadata": {"name": "c.example.com", "labels": labels}, "spec": spec});
        let group = format!("{{metadata: {{name: group}}, spec: {{{group}}}}}");
        let group = InstanceGroup::parse(group.as_bytes(), "instancegroup/group").unwrap();
        Store {
            cluster: Cluster::parse(cluster.to_string().as_bytes(), "cluster-completed.spec").unwrap(),
            user_cluster: None,
            release: KopsRelease::NEWEST,
            kops_version: None,
            roles: BTreeSet::from([group.spec.role]),
            group,
            keysets: BTreeMap::new(),
            secrets: BTreeMap::new(),
            manifests: BTreeMap::new(),
            hashes: KnownHashes::default(),
        }
    }

    pub(super) fn inputs(&self) -> Inputs<'_> {
        Inputs {
            cluster: &self.cluster,
            user_cluster: self.user_cluster.as_ref(),
            instance_group: &self.group,
            release: self.release,
            kops_version: self.kops_version.as_deref(),
            roles: &self.roles,
            keysets: &self.keysets,
            secrets: &self.secrets,
            cluster_addons: None,
            bootstrap_channel: None,
            addon_manifests: &self.manifests,
            asset_hashes: &self.hashes,
            machine_type: None,
            machine_type_has_gpu: None,
            worker_kubernetes_version: None,
            api_server_addresses: &[],
            etcd_addresses: &[],
        }
    }
}
