//! Derives the `nodeupconfig.yaml` that kOps would write for a group, from the completed cluster spec, the group and the key sets in the
//! store. The result is used for `--config-from cluster-spec`, and to prove a pinned file.
//!
//! [`kops_agent_spec::go_yaml`] writes the result with the same bytes as kOps. So `NodeupConfigHash` in the user-data proves the whole
//! derivation, including the hashes of assets. The rules follow upstream's `pkg/apis/nodeup/config.go` (`NewConfig`),
//! `pkg/nodemodel/nodeupconfigbuilder.go` (`BuildConfig`) and `upup/pkg/fi/cloudup/populate_instancegroup_spec.go`. They include upstream's
//! quirks, because the same spec must give the same node.

mod api_server;
mod asset_hashes;
mod assets;
mod authorities;
mod boot_config;
mod config;
mod containerd;
mod differences;
mod discovery;
mod download_url;
mod images;
mod instance_group;
mod kops_controller_config;
mod kubelet;
mod merge;
mod needed_files;
mod networking;
mod prefix_delegation;
mod proof;
mod releases;
mod scheduler_file;
#[cfg(test)]
mod testing;
mod warm_pool;

use std::collections::{BTreeMap, BTreeSet};

pub use asset_hashes::{AssetHashes, KnownHashes, MalformedHashLine};
pub use assets::{AssetUrl, asset_urls};
pub use boot_config::boot_config;
pub use config::{nodeup_config, nodeup_config_and_problems};
pub use differences::{FieldDifference, differences};
pub use kops_controller_config::{kops_controller_config, kops_controller_manifest};
pub use needed_files::{NeededFiles, addon_manifests, former_keyset_name, needed_files};
pub use proof::{Reason, reasons, unhashed};

use kops_agent_cluster::identity::aws::noted_labels;
use kops_agent_spec::kops_release::KopsRelease;
use kops_agent_spec::{CloudProvider, Cluster, InstanceGroup, InstanceGroupRole, Keyset, Secret};

#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// The completed cluster: `cluster-completed.spec`.
    pub cluster: &'a Cluster,
    /// The cluster as its user wrote it: `config`. Two settings of kube-scheduler are only in this file.
    pub user_cluster: Option<&'a Cluster>,
    /// The group as its user wrote it: `instancegroup/<name>`.
    pub instance_group: &'a InstanceGroup,
    /// The kOps release whose rules apply.
    pub release: KopsRelease,
    /// The full kOps version, which is part of the URLs of kOps' own programs. `None` if the version is unknown.
    pub kops_version: Option<&'a str>,
    /// The roles of all groups in the cluster, including the role of `instance_group`.
    pub roles: &'a BTreeSet<InstanceGroupRole>,
    /// The key sets that [`needed_files`] names, by id.
    pub keysets: &'a BTreeMap<String, Keyset>,
    /// The secrets that [`needed_files`] names, by id.
    pub secrets: &'a BTreeMap<String, Secret>,
    /// The text of `clusteraddons/default`: the user's additional objects.
    pub cluster_addons: Option<&'a str>,
    /// The text of `addons/bootstrap-channel.yaml`. Only warm pools need it.
    pub bootstrap_channel: Option<&'a str>,
    /// The manifests that [`addon_manifests`] names, by their path below `addons/`. If an addon's manifest is missing here, the addon's
    /// images are the ones that the kOps release uses.
    pub addon_manifests: &'a BTreeMap<String, String>,
    pub asset_hashes: &'a dyn AssetHashes,
    /// The machine type of the running machine. It is used only if the group names no machine type, because kOps then
    /// chose the cloud's default type.
    pub machine_type: Option<&'a str>,
    /// Whether EC2 reports a GPU for the machine type in the *group*. If EC2 was not asked (`None`), the type's family decides.
    pub machine_type_has_gpu: Option<bool>,
    /// The older Kubernetes version of the groups without an API server. kOps keeps these groups at this version while the control plane is
    /// upgraded. With `None`, these groups have the cluster's version (upstream: `cmd/kops/update_cluster.go`).
    pub worker_kubernetes_version: Option<&'a str>,
    /// Addresses of the API's load balancer, which only the cloud knows.
    pub api_server_addresses: &'a [String],
    /// Addresses of etcd's load balancer, which only the cloud knows.
    pub etcd_addresses: &'a [String],
}

/// The labels that kops-controller gives the nodes of a group (upstream: `pkg/nodelabels/builder.go`, and the additions of
/// `populate_instancegroup_spec.go`). `roles` are the roles of all groups in the cluster.
///
/// On AWS, kops-controller reads the labels from the instance's tags. So kops-controller also sets labels that a user writes into the tags
/// by `cloudLabels`. kOps' own labels override the user's labels (`pkg/model/context.go`, `CloudTagsForInstanceGroup`).
pub fn node_labels(
    cluster: &Cluster,
    instance_group: &InstanceGroup,
    roles: &BTreeSet<InstanceGroupRole>,
    release: KopsRelease,
) -> BTreeMap<String, String> {
    let mut labels = match cluster.cloud_provider() {
        Some(CloudProvider::Aws) => [&cluster.spec.cloud_labels, &instance_group.spec.cloud_labels]
            .into_iter()
            .flat_map(noted_labels)
            .collect(),
        _ => BTreeMap::new(),
    };
    // All other inputs stay empty, because the labels do not depend on them.
    labels.extend(kubelet::node_labels(&Inputs {
        cluster,
        user_cluster: None,
        instance_group,
        release,
        kops_version: None,
        roles,
        keysets: &BTreeMap::new(),
        secrets: &BTreeMap::new(),
        cluster_addons: None,
        bootstrap_channel: None,
        addon_manifests: &BTreeMap::new(),
        asset_hashes: &KnownHashes::default(),
        machine_type: None,
        machine_type_has_gpu: None,
        worker_kubernetes_version: None,
        api_server_addresses: &[],
        etcd_addresses: &[],
    }));
    labels
}

impl Inputs<'_> {
    fn role(&self) -> InstanceGroupRole {
        self.instance_group.spec.role
    }

    fn runs_api_server(&self) -> bool {
        self.role().runs_api_server()
    }

    fn is_control_plane(&self) -> bool {
        self.role() == InstanceGroupRole::ControlPlane
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LABEL: &str = "k8s.io/cluster-autoscaler/node-template/label/";

    fn labels(cloud: &str) -> Vec<String> {
        let cluster = format!(
            "{{apiVersion: kops.k8s.io/v1alpha2, kind: Cluster, metadata: {{name: c}}, spec: {{cloudProvider: {cloud}, \
             kubernetesVersion: 1.34.1, cloudLabels: {{owner: me, {LABEL}a: cluster, {LABEL}b: cluster, {LABEL}c: \
             cluster}}}}}}"
        );
        let group = format!(
            "{{apiVersion: kops.k8s.io/v1alpha2, kind: InstanceGroup, metadata: {{name: nodes}}, spec: {{role: Node, \
             nodeLabels: {{c: node}}, cloudLabels: {{{LABEL}b: group, {LABEL}c: group, {LABEL}d: group}}}}}}"
        );
        let cluster = Cluster::parse(cluster.as_bytes(), "cluster").unwrap();
        let group = InstanceGroup::parse(group.as_bytes(), "group").unwrap();
        let roles = BTreeSet::from([InstanceGroupRole::Node]);
        let labels = node_labels(&cluster, &group, &roles, KopsRelease::NEWEST);
        labels.iter().map(|(key, value)| format!("{key}={value}")).collect()
    }

    #[test]
    fn on_aws_user_tags_become_labels_below_kops_own() {
        let role = "node-role.kubernetes.io/node=";
        assert_eq!(labels("aws"), ["a=cluster", "b=group", "c=node", "d=group", role]);
        // On GCE, cloud labels do not become node labels, because labels of Compute Engine are too short for these keys.
        assert_eq!(labels("gce"), ["c=node", role]);
    }
}
