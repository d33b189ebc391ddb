//! Checks `maxPods` if the Amazon VPC CNI assigns pod addresses from prefixes. kOps computes `maxPods` as if each pod needed an address of
//! its own (nodeup/pkg/model/kubelet.go). Such a node can run more pods than that.

use kops_agent_spec::{Cluster, FieldWarning, InstanceGroup, InstanceGroupRole};

/// The CNI's environment variable that enables prefixes (github.com/aws/amazon-vpc-cni-k8s, README.md).
const SWITCH: &str = "ENABLE_PREFIX_DELEGATION";

/// The warning for a group that uses prefixes and does not set `maxPods`.
pub fn finding(cluster: &Cluster, group: &InstanceGroup) -> Option<FieldWarning> {
    let spec = &cluster.spec;
    let env = &spec.networking.amazon_vpc.as_ref()?.env;
    let is_on = env.iter().any(|variable| variable.name == SWITCH && variable.value == "true");
    let of_cluster = match group.spec.role {
        InstanceGroupRole::ControlPlane => &spec.control_plane_kubelet,
        _ => &spec.kubelet,
    };
    let kubelets = [&group.spec.kubelet, of_cluster, &spec.kubelet];
    let is_set = kubelets.iter().any(|kubelet| kubelet.as_ref().is_some_and(|one| one.max_pods.is_some()));
    (is_on && !is_set).then(|| FieldWarning {
        field: "spec.kubelet.maxPods".into(),
        problem: format!(
            "is not set, but {SWITCH} is true: kOps computes it from one address per pod, and uses at most 110. Amazon recommends \
             110 for instance types with fewer than 30 vCPUs, and 250 for all others; set it in the instance group"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::testing::Store;

    #[test]
    fn a_group_that_sets_no_number_is_told() {
        let with = |value: &str| {
            format!("networking: {{amazonvpc: {{env: [{{name: {SWITCH}, value: '{value}'}}]}}}}")
        };
        for (cluster, group, is_told) in [
            (with("true"), "role: Node", true),
            (with("true"), "role: Master", true),
            (with("false"), "role: Node", false),
            ("networking: {amazonvpc: {}}".into(), "role: Node", false),
            (with("true"), "role: Node, kubelet: {maxPods: 250}", false),
            (with("true") + ", kubelet: {maxPods: 250}", "role: Node", false),
            (with("true") + ", masterKubelet: {maxPods: 250}", "role: Master", false),
            (with("true") + ", masterKubelet: {maxPods: 250}", "role: Node", true),
        ] {
            let store = Store::of(&cluster, group);
            let inputs = store.inputs();
            let told = finding(inputs.cluster, inputs.instance_group);
            assert_eq!(told.is_some(), is_told, "{cluster} / {group}");
            assert!(told.is_none_or(|told| told.problem.contains("250")));
        }
    }
}
