//! Volumes that the user wants formatted and mounted.
//!
//! Source: nodeup/pkg/model/volumes.go.

use crate::resolve::NodeConfig;
use crate::resource::DesiredState;

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    for mount in &node.volume_mounts {
        state.add(mount.clone());
    }
}
