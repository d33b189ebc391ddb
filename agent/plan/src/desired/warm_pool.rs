//! Images that an instance pulls while it warms up for an AWS warm pool. So the images are present when the
//! instance joins the cluster.
//!
//! Source: nodeup/pkg/model/warm_pool.go.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, Image};

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if node.is_warming() {
        for name in &node.config.warm_pool_images {
            state.add(Image { name: name.clone(), sources: Vec::new(), sha256: String::new() });
        }
    }
}
