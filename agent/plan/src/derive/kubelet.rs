//! The kubelet settings of a group: the cluster's settings, overridden by the group's, with the labels and taints of the role (upstream:
//! `populate_instancegroup_spec.go`, `pkg/nodelabels/builder.go`).

use std::collections::{BTreeMap, BTreeSet};

use super::Inputs;
use super::instance_group::{self, KARPENTER};
use super::merge::merge;
use kops_agent_cluster::labels::OF_ANY_CONTROL_PLANE;
use kops_agent_spec::{InstanceGroupRole, KubeletConfigSpec};

const GPU_LABEL: &str = "kops.k8s.io/gpu";
const GVISOR_LABEL: &str = "kops.k8s.io/gvisor";
const PROVISIONER_LABEL: &str = "karpenter.sh/provisioner-name";
const API_SERVER_LABEL: &str = "node-role.kubernetes.io/api-server";
const CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";
const NODE_LABEL: &str = "node-role.kubernetes.io/node";

pub(super) fn kubelet_config(inputs: &Inputs<'_>) -> KubeletConfigSpec {
    let overlay = inputs.instance_group.spec.kubelet.clone().unwrap_or_default();
    let mut base = base(inputs);
    let taints = taints(inputs, &base, &overlay);
    // If the cluster enables anonymous access, upstream disables it on every kubelet. Only a group's own setting can enable it.
    let opened_by_cluster = base.anonymous_auth == Some(true);
    base.node_labels = merged_node_labels(inputs, &base, &overlay);

    let mut kubelet = merge(&base, &overlay);
    kubelet.taints = taints.into_iter().collect();
    if opened_by_cluster {
        kubelet.anonymous_auth = Some(false);
    }
    kubelet
}

fn base(inputs: &Inputs<'_>) -> KubeletConfigSpec {
    let spec = &inputs.cluster.spec;
    if !inputs.is_control_plane() {
        return spec.kubelet.clone().unwrap_or_default();
    }
    let mut base = spec.control_plane_kubelet.clone().unwrap_or_default();
    if spec.kubelet.as_ref().and_then(|kubelet| kubelet.anonymous_auth) == Some(false) {
        base.anonymous_auth = Some(false);
    }
    base
}

pub(super) fn node_labels(inputs: &Inputs<'_>) -> BTreeMap<String, String> {
    let overlay = inputs.instance_group.spec.kubelet.clone().unwrap_or_default();
    merged_node_labels(inputs, &base(inputs), &overlay)
}

fn merged_node_labels(
    inputs: &Inputs<'_>,
    base: &KubeletConfigSpec,
    overlay: &KubeletConfigSpec,
) -> BTreeMap<String, String> {
    let mut labels = base.node_labels.clone();
    labels.extend(overlay.node_labels.clone());
    labels.extend(role_labels(inputs).into_iter().map(|label| (label.to_owned(), String::new())));
    labels.extend(inputs.instance_group.spec.node_labels.clone());
    if instance_group::has_gpu(inputs) {
        labels.insert(GPU_LABEL.to_owned(), "1".to_owned());
    }
    let is_karpenters = inputs.instance_group.spec.manager == KARPENTER;
    if is_karpenters && inputs.release.labels_nodes_of_karpenter() {
        labels.insert(PROVISIONER_LABEL.to_owned(), inputs.instance_group.metadata.name.clone());
    }
    if instance_group::has_gvisor(inputs) && inputs.release.has_gvisor() {
        labels.insert(GVISOR_LABEL.to_owned(), "1".to_owned());
    }
    labels
}

/// The labels of the group's role. Upstream adds the API server's label to control planes only with the feature flag APIServerNodes.
/// Without this flag, upstream rejects groups of API servers. So if the cluster has such a group, the flag was set.
fn role_labels(inputs: &Inputs<'_>) -> Vec<&'static str> {
    match inputs.role() {
        InstanceGroupRole::Node => vec![NODE_LABEL],
        InstanceGroupRole::APIServer => vec![API_SERVER_LABEL],
        InstanceGroupRole::ControlPlane => {
            let mut labels = OF_ANY_CONTROL_PLANE.to_vec();
            if inputs.roles.contains(&InstanceGroupRole::APIServer) {
                labels.push(API_SERVER_LABEL);
            }
            labels
        }
        _ => Vec::new(),
    }
}

/// The taints of all sources together. Only taints are combined: for other settings, the group's value replaces the
/// cluster's value.
fn taints(inputs: &Inputs<'_>, base: &KubeletConfigSpec, overlay: &KubeletConfigSpec) -> BTreeSet<String> {
    let spec = &inputs.instance_group.spec;
    let of_nodes = inputs.cluster.spec.kubelet.iter().flat_map(|kubelet| &kubelet.taints);
    let mut taints: BTreeSet<String> =
        base.taints.iter().chain(&spec.taints).chain(&overlay.taints).chain(of_nodes).cloned().collect();
    if instance_group::has_gpu(inputs) && !spec.taints.iter().any(|taint| taint.starts_with("nvidia.com/gpu"))
    {
        taints.insert("nvidia.com/gpu:NoSchedule".to_owned());
    }
    match inputs.role() {
        InstanceGroupRole::ControlPlane => taints.insert(format!("{CONTROL_PLANE_LABEL}=:NoSchedule")),
        InstanceGroupRole::APIServer => taints.insert(format!("{API_SERVER_LABEL}=:NoSchedule")),
        _ => false,
    };
    if spec.manager == KARPENTER && inputs.release.taints_nodes_of_karpenter() {
        taints.insert("karpenter.sh/unregistered=:NoExecute".to_owned());
    }
    taints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::testing::Store;

    fn kubelet(cluster: &str, group: &str) -> KubeletConfigSpec {
        kubelet_config(&Store::new(cluster, group).inputs())
    }

    fn labels(kubelet: &KubeletConfigSpec) -> Vec<String> {
        kubelet.node_labels.iter().map(|(label, value)| format!("{label}={value}")).collect()
    }

    #[test]
    fn the_groups_kubelet_labels_override_all_others() {
        let kubelet = kubelet(
            "kubelet: {nodeLabels: {a: cluster, b: cluster}}",
            "role: Node, nodeLabels: {b: group, c: group}, kubelet: {nodeLabels: {c: kubelet, node-role.kubernetes.io/node: x}}",
        );
        assert_eq!(labels(&kubelet), ["a=cluster", "b=group", "c=kubelet", "node-role.kubernetes.io/node=x"]);
    }

    #[test]
    fn control_planes_get_the_api_server_label_if_the_cluster_has_such_groups() {
        let mut store = Store::new("", "role: Master");
        assert!(!kubelet_config(&store.inputs()).node_labels.contains_key(API_SERVER_LABEL));
        store.roles.insert(InstanceGroupRole::APIServer);
        assert!(kubelet_config(&store.inputs()).node_labels.contains_key(API_SERVER_LABEL));
    }

    #[test]
    fn taints_of_all_sources_are_merged_and_sorted() {
        let kubelet = kubelet(
            "kubelet: {taints: [d=:NoSchedule]}, masterKubelet: {taints: [a=:NoSchedule]}",
            "role: Master, taints: [b=:NoSchedule], kubelet: {taints: [b=:NoSchedule, c=:NoSchedule]}",
        );
        assert_eq!(
            kubelet.taints,
            [
                "a=:NoSchedule",
                "b=:NoSchedule",
                "c=:NoSchedule",
                "d=:NoSchedule",
                "node-role.kubernetes.io/control-plane=:NoSchedule"
            ]
        );
    }

    #[test]
    fn only_a_groups_setting_enables_anonymous_access() {
        let anonymous = |cluster: &str, group: &str| kubelet(cluster, group).anonymous_auth;
        assert_eq!(anonymous("kubelet: {anonymousAuth: true}", "role: Node"), Some(false));
        assert_eq!(anonymous("", "role: Node, kubelet: {anonymousAuth: true}"), Some(true));
        assert_eq!(
            anonymous(
                "kubelet: {anonymousAuth: false}, masterKubelet: {anonymousAuth: true}",
                "role: Master"
            ),
            Some(false)
        );
        assert_eq!(
            anonymous("kubelet: {anonymousAuth: true}", "role: Node, kubelet: {anonymousAuth: true}"),
            Some(false)
        );
    }

    #[test]
    fn a_gpu_is_labelled_and_tainted_unless_the_group_taints_it() {
        let cluster = "containerd: {nvidiaGPU: {enabled: true}}";
        let ours = kubelet(cluster, "role: Node, machineType: g4dn.xlarge");
        assert_eq!(ours.taints, ["nvidia.com/gpu:NoSchedule"]);
        assert!(labels(&ours).contains(&"kops.k8s.io/gpu=1".to_owned()));
        let theirs =
            kubelet(cluster, "role: Node, machineType: g4dn.xlarge, taints: ['nvidia.com/gpu=x:NoExecute']");
        assert_eq!(theirs.taints, ["nvidia.com/gpu=x:NoExecute"]);
    }

    #[test]
    fn nodes_of_karpenter_register_with_its_taint() {
        assert_eq!(
            kubelet("", "role: Node, manager: Karpenter").taints,
            ["karpenter.sh/unregistered=:NoExecute"]
        );
    }
}
