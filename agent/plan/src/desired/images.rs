//! Container images from archives, which are loaded before kubelet starts.
//!
//! Source: the end of `Run` in upup/pkg/fi/nodeup/command.go.

use crate::resolve::NodeConfig;
use crate::resource::DesiredState;

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    for image in &node.images {
        state.add(image.clone());
    }
}
