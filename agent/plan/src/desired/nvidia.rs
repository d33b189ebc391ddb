//! The driver of an NVIDIA GPU, and the runtime that lets containers use it. Only Ubuntu has packages of the
//! driver and the runtime.
//!
//! Source: nodeup/pkg/model/nvidia.go.

use crate::resolve::{NodeConfig, Project};
use crate::resource::{DesiredState, Package, PackageSource};

const TOOLKIT: &str = "nvidia-container-toolkit";

/// On Ubuntu, adds the NVIDIA driver and NVIDIA's container toolkit if the node uses an NVIDIA GPU.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let Some(driver) = &node.container_runtime.nvidia_driver_package else { return };
    if node.distribution.project != Project::Ubuntu {
        return;
    }
    let arch = node.facts.arch;
    state.add(PackageSource {
        name: TOOLKIT.into(),
        keyring: "https://nvidia.github.io/libnvidia-container/gpgkey".into(),
        sources: vec![format!("deb https://nvidia.github.io/libnvidia-container/stable/deb/{arch} /")],
    });
    state.add(Package { name: TOOLKIT.into() });
    state.add(Package { name: driver.clone() });
}
