//! Files that a user, or kOps itself, adds to nodes, and the directories that they are in.
//!
//! Source: nodeup/pkg/model/file_assets.go.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, Directory, File, FreeText, Kind, ResourceId};

/// Directories whose mode is not the default 0755. They exist on every machine and stay unchanged.
const WITH_MODES_OF_THEIR_OWN: [&str; 3] = ["/root", "/tmp", "/var/tmp"];

/// Adds the user's fileAssets. This function runs after every other component. So if a component describes a directory,
/// that description stays.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    add_directory(&node.file_assets_directory(), state);
    for asset in &node.file_assets {
        add_directory(&asset.directory, state);
        let file = File::new(&asset.path, asset.content.clone()).mode(asset.mode);
        state.add(file.with_free_text(FreeText::Whole));
    }
}

fn add_directory(path: &str, state: &mut DesiredState) {
    let is_described = state.get(&ResourceId::new(Kind::Directory, path)).is_some();
    if !is_described && !WITH_MODES_OF_THEIR_OWN.contains(&path) {
        state.add(Directory::new(path));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::desired::desired;
    use crate::desired::testing::Machine;
    use crate::resource::{Kind, ResourceId};

    #[test]
    fn a_drop_in_restarts_its_unit() {
        let path = "/etc/systemd/system/kubelet.service.d/10-x.conf";
        let machine =
            Machine::node().config(json!({ "FileAssets": [{ "path": path, "content": "[Service]\n" }] }));
        let node = machine.desired(|node, state| *state = desired(node).unwrap());
        let by = |unit: &str| node.unit(unit).restarted_by.contains(&ResourceId::new(Kind::File, path));
        assert!(by("kubelet.service") && !by("containerd.service"));
    }
}
