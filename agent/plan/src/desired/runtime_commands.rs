//! Command-line clients of the container runtime, if the cluster enables them. crictl uses the interface that kubelet uses
//! (CRI), and nerdctl uses containerd's own interface.
//!
//! Source: nodeup/pkg/model/crictl.go and nerdctl.go.

use crate::resolve::{NodeConfig, Program};
use crate::resource::{DesiredState, File, Mode};

pub(super) fn add_crictl(node: &NodeConfig, state: &mut DesiredState) {
    add(node, node.container_runtime.crictl.as_ref(), state);
}

pub(super) fn add_nerdctl(node: &NodeConfig, state: &mut DesiredState) {
    add(node, node.container_runtime.nerdctl.as_ref(), state);
}

fn add(node: &NodeConfig, program: Option<&Program>, state: &mut DesiredState) {
    if let Some(program) = program {
        let path = format!("{}/{}", node.distribution.kubernetes_bin, program.name);
        state.add(File::new(path, program.content.clone()).mode(Mode::EXECUTABLE));
    }
}
