//! nerdctl: a command line for containerd, if the cluster enables it.
//!
//! Source: nodeup/pkg/model/nerdctl.go.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, File, Mode};

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if let Some(program) = &node.container_runtime.nerdctl {
        let path = format!("{}/{}", node.distribution.kubernetes_bin, program.name);
        state.add(File::new(path, program.content.clone()).mode(Mode::EXECUTABLE));
    }
}
