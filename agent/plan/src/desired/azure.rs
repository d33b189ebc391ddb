//! udev rules on Azure that link each disk by its purpose in `/dev/disk/azure`, for images that lack these
//! rules.
//!
//! Source: nodeup/pkg/model/azure.go.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, File};
use kops_agent_spec::CloudProvider;

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if node.cloud_provider() != CloudProvider::Azure {
        return;
    }
    let rules = File::text("/etc/udev/rules.d/80-azure-disk.rules", include_str!("80-azure-disk.rules"));
    state.add(rules.create_only().on_change(&["udevadm", "control", "--reload"]).on_change(&[
        "udevadm",
        "trigger",
        "--subsystem-match=block",
    ]));
}
