//! Values that kOps adds to a group before it configures the group's machines. The store has only the values that the user wrote (upstream:
//! `upup/pkg/fi/cloudup/populate_instancegroup_spec.go`).

use super::Inputs;
use crate::resolve::Problems;
use kops_agent_spec::{CloudProvider, ContainerdConfig, InstanceGroupRole};

/// The value of the field `manager` in groups whose machines Karpenter starts.
pub(super) const KARPENTER: &str = "Karpenter";

/// Rejects roles that upstream defines but cannot configure.
pub(super) fn check_role(inputs: &Inputs<'_>, problems: &mut Problems) {
    let role = inputs.role();
    if matches!(
        role,
        InstanceGroupRole::Etcd | InstanceGroupRole::Scheduler | InstanceGroupRole::KubeControllerManager
    ) {
        problems.add(
            "spec.role",
            format!(
                "{role} is experimental in kOps, and kOps has no configuration for this role; use \
                 ControlPlane, APIServer, Node or Bastion"
            ),
        );
    }
}

/// Whether the group's machines run containers in gVisor. Only workers can run gVisor.
pub(super) fn has_gvisor(inputs: &Inputs<'_>) -> bool {
    let containerd = inputs.instance_group.spec.containerd.as_ref();
    inputs.role() == InstanceGroupRole::Node
        && containerd.and_then(|containerd| containerd.gvisor.as_ref()).and_then(|gvisor| gvisor.enabled)
            == Some(true)
}

/// Whether the group's machines get the label and taint for GPUs.
///
/// On AWS, the machine type in the group must have a GPU. Upstream asks EC2. Without EC2's answer, the machine family decides: EC2's
/// documentation lists GPUs or Gaudi accelerators for the families p, g and dl1.
pub(super) fn has_gpu(inputs: &Inputs<'_>) -> bool {
    let enabled = |containerd: &Option<ContainerdConfig>| {
        let nvidia = containerd.as_ref().and_then(|containerd| containerd.nvidia_gpu.as_ref());
        nvidia.and_then(|nvidia| nvidia.enabled) == Some(true)
    };
    let by_group = enabled(&inputs.instance_group.spec.containerd);
    match inputs.cluster.cloud_provider() {
        Some(CloudProvider::Aws) => {
            let wanted = by_group || enabled(&inputs.cluster.spec.containerd);
            let machine_type = machine_type(inputs);
            wanted && inputs.machine_type_has_gpu.unwrap_or_else(|| is_gpu_family(&machine_type))
        }
        Some(CloudProvider::Openstack) => by_group,
        _ => false,
    }
}

fn is_gpu_family(machine_type: &str) -> bool {
    let family = machine_type.split('.').next().unwrap_or_default();
    family.starts_with(['p', 'g']) || family == "dl1"
}

/// The group's machine type, or kOps' default.
pub(super) fn machine_type(inputs: &Inputs<'_>) -> String {
    let spec = &inputs.instance_group.spec;
    if !spec.machine_type.is_empty() {
        return spec.machine_type.clone();
    }
    let is_aws = inputs.cluster.cloud_provider() == Some(CloudProvider::Aws);
    match inputs.machine_type {
        Some(machine_type) if is_aws && spec.manager != KARPENTER => machine_type.to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::testing::Store;

    #[test]
    fn on_aws_the_machine_type_must_have_a_gpu() {
        for (machine_type, has) in [
            ("g4dn.xlarge", true),
            ("p5.48xlarge", true),
            ("dl1.24xlarge", true),
            ("m5.large", false),
            ("t3.micro", false),
        ] {
            let store = Store::new(
                "containerd: {nvidiaGPU: {enabled: true}}",
                &format!("role: Node, machineType: {machine_type}"),
            );
            assert_eq!(has_gpu(&store.inputs()), has, "{machine_type}");
        }
        let store = Store::new("", "role: Node, machineType: g4dn.xlarge");
        assert!(!has_gpu(&store.inputs()));
    }

    #[test]
    fn ec2s_answer_about_a_gpu_overrides_the_family() {
        let store =
            Store::new("containerd: {nvidiaGPU: {enabled: true}}", "role: Node, machineType: g99.large");
        assert!(!has_gpu(&Inputs { machine_type_has_gpu: Some(false), ..store.inputs() }));
    }

    #[test]
    fn a_default_machine_type_comes_from_the_machine() {
        let store = Store::new("", "role: Node");
        assert_eq!(machine_type(&store.inputs()), "");
        assert_eq!(machine_type(&Inputs { machine_type: Some("t3.medium"), ..store.inputs() }), "t3.medium");
        let karpenter = Store::new("", "role: Node, manager: Karpenter");
        assert_eq!(machine_type(&Inputs { machine_type: Some("t3.medium"), ..karpenter.inputs() }), "");
    }
}
