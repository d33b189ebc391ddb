//! crictl: a command line for the interface between kubelet and containerd, if the cluster enables
//! it.
//!
//! Source: nodeup/pkg/model/crictl.go.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, File, Mode};

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if let Some(program) = &node.container_runtime.crictl {
        let path = format!("{}/{}", node.distribution.kubernetes_bin, program.name);
        state.add(File::new(path, program.content.clone()).mode(Mode::EXECUTABLE));
    }
}
