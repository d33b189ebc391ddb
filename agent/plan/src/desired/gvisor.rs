//! gVisor: a container runtime that isolates containers from the host's kernel. Only distributions with apt
//! have packages of gVisor.
//!
//! Source: nodeup/pkg/model/gvisor.go.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, Package, PackageSource};

/// Adds gVisor's package, which includes its shim for containerd.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if node.container_runtime.gvisor_platform.is_none() || !node.distribution.is_debian_family() {
        return;
    }
    let arch = node.facts.arch;
    state.add(PackageSource {
        name: "gvisor".into(),
        keyring: "https://gvisor.dev/archive.key".into(),
        sources: vec![format!(
            "deb [arch={arch}] https://storage.googleapis.com/gvisor/releases release main"
        )],
    });
    state.add(Package { name: "runsc".into() });
}
