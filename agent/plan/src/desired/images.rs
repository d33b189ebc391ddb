//! Container images from archives, which are loaded before kubelet starts. Also the images that an instance pulls while it
//! warms up for an AWS warm pool, so that they are present when the instance joins the cluster.
//!
//! Source: the end of `Run` in upup/pkg/fi/nodeup/command.go, and nodeup/pkg/model/warm_pool.go.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, Image};

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    for image in &node.images {
        state.add(image.clone());
    }
    if node.is_warming() {
        for name in &node.config.warm_pool_images {
            state.add(Image { name: name.clone(), sources: Vec::new(), sha256: String::new() });
        }
    }
}
