//! Checks `maxPods` if the Amazon VPC CNI assigns pod addresses from prefixes. kOps computes `maxPods` as if each pod needed an address of
//! its own (nodeup/pkg/model/kubelet.go). Such a node can run more pods than that.

use super::{Inputs, kubelet};
use crate::resolve::Problems;

/// The CNI's environment variable that enables prefixes (github.com/aws/amazon-vpc-cni-k8s, README.md).
const SWITCH: &str = "ENABLE_PREFIX_DELEGATION";

/// Warns of a group that uses prefixes and does not set `maxPods`.
pub(super) fn check(inputs: &Inputs<'_>, problems: &mut Problems) {
    let Some(cni) = &inputs.cluster.spec.networking.amazon_vpc else { return };
    let is_on = cni.env.iter().any(|variable| variable.name == SWITCH && variable.value == "true");
    if is_on && kubelet::kubelet_config(inputs).max_pods.is_none() {
        problems.warn(
            "spec.kubelet.maxPods",
            format!(
                "is not set, but {SWITCH} is true: kOps computes it from one address per pod, and uses at most 110. Amazon recommends \
                 110 for instance types with fewer than 30 vCPUs, and 250 for all others; set it in the instance group"
            ),
        );
    }
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
            (with("true") + ", kubelet: {maxPods: 250}", "role: Master", true),
        ] {
            let store = Store::of(&cluster, group);
            let mut problems = Problems::default();
            check(&store.inputs(), &mut problems);
            assert_eq!(problems.warnings().len(), usize::from(is_told), "{cluster} / {group}");
            assert!(problems.warnings().iter().all(|told| told.problem.contains("250")));
        }
    }
}
