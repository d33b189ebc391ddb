//! The settings of containerd and additional runtimes. The group's settings override the cluster's (upstream: `pkg/apis/nodeup/config.go`).

use super::Inputs;
use super::instance_group::has_gvisor;
use super::merge::merge;
use kops_agent_spec::{ContainerdConfig, GVisorConfig, NvidiaGPUConfig};

/// The package of kOps' default NVIDIA driver.
const DEFAULT_NVIDIA_PACKAGE: &str = "nvidia-driver-535-server";
/// kOps' default for the way in which gVisor intercepts system calls.
const DEFAULT_GVISOR_PLATFORM: &str = "systrap";

pub(super) fn containerd_config(inputs: &Inputs<'_>) -> Option<ContainerdConfig> {
    let (cluster, group) = both(inputs);
    let mut config = match (cluster, group) {
        (None, None) => return None,
        (Some(cluster), Some(group)) => merge(cluster, group),
        (Some(one), None) | (None, Some(one)) => one.clone(),
    };
    if !has_gvisor(inputs) || !inputs.release.has_gvisor() {
        config.gvisor = None;
    }
    Some(config)
}

/// The field `NvidiaGPU`. The field is set if the cluster or the group has settings for GPUs, even settings that disable GPUs.
///
/// Upstream changes the cluster's settings in memory when it merges a group's settings into them. So upstream's result can depend on the
/// order of the groups. In this function, groups do not affect each other.
pub(super) fn nvidia_gpu(inputs: &Inputs<'_>) -> Option<NvidiaGPUConfig> {
    let (cluster, group) = both(inputs);
    let of = |containerd: Option<&ContainerdConfig>| {
        containerd.and_then(|containerd| containerd.nvidia_gpu.clone())
    };
    let mut config = match (of(cluster), of(group)) {
        (None, None) => return None,
        (Some(cluster), Some(group)) => merge(&cluster, &group),
        (Some(one), None) | (None, Some(one)) => one,
    };
    if config.package.is_empty() {
        config.package = DEFAULT_NVIDIA_PACKAGE.to_owned();
    }
    Some(config)
}

pub(super) fn gvisor(inputs: &Inputs<'_>) -> Option<GVisorConfig> {
    let (_, group) = both(inputs);
    let mut config = group.filter(|_| has_gvisor(inputs))?.gvisor.clone()?;
    if config.platform.is_empty() {
        config.platform = DEFAULT_GVISOR_PLATFORM.to_owned();
    }
    Some(config)
}

fn both<'a>(inputs: &Inputs<'a>) -> (Option<&'a ContainerdConfig>, Option<&'a ContainerdConfig>) {
    (inputs.cluster.spec.containerd.as_ref(), inputs.instance_group.spec.containerd.as_ref())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::derive::testing::Store;

    #[test]
    fn the_groups_settings_override_the_clusters() {
        let store = Store::new(
            "containerd: {logLevel: info, registryMirrors: {a: [x], b: [y]}}",
            "role: Node, containerd: {logLevel: debug, registryMirrors: {b: [z]}, version: 2.2.0}",
        );
        let config = containerd_config(&store.inputs()).unwrap();
        assert_eq!((config.log_level.as_deref(), config.version.as_deref()), (Some("debug"), Some("2.2.0")));
        assert_eq!(
            (&config.registry_mirrors["a"], &config.registry_mirrors["b"]),
            (&vec!["x".into()], &vec!["z".into()])
        );
        assert!(config.runc.is_some());
    }

    #[test]
    fn gvisor_is_for_workers_that_enable_it() {
        let containerd = "containerd: {gvisor: {enabled: true}}";
        let store = Store::new(containerd, &format!("role: Node, {containerd}"));
        assert_eq!(gvisor(&store.inputs()).unwrap().platform, "systrap");
        assert!(containerd_config(&store.inputs()).unwrap().gvisor.is_some());
        for group in ["role: Node".to_owned(), format!("role: Master, {containerd}")] {
            let store = Store::new(containerd, &group);
            assert_eq!(gvisor(&store.inputs()), None);
            assert_eq!(containerd_config(&store.inputs()).unwrap().gvisor, None);
        }
    }

    #[test]
    fn a_disabled_gpu_still_names_its_driver() {
        let store = Store::new(
            "containerd: {nvidiaGPU: {enabled: true}}",
            "role: Node, containerd: {nvidiaGPU: {enabled: false}}",
        );
        let config = nvidia_gpu(&store.inputs()).unwrap();
        assert_eq!((config.enabled, config.package.as_str()), (Some(false), "nvidia-driver-535-server"));
    }
}
