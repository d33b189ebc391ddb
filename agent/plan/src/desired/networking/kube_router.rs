//! kube-router: a kubeconfig for its DaemonSet, and iproute2's tables at the path from which kube-router
//! reads them.
//!
//! Source: nodeup/pkg/model/networking/kube_router.go.

use crate::desired::certificates;
use crate::resolve::{NodeConfig, Project};
use crate::resource::{DesiredState, File, Mode, Symlink};

const NAME: &str = "kube-router";

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if node.config.networking.kube_router.is_none() {
        return;
    }
    let subject = certificates::user("system:kube-router");
    let kubeconfig = certificates::node_kubeconfig(state, node, NAME, subject);
    state.add(File::new("/var/lib/kube-router/kubeconfig", kubeconfig).mode(Mode(0o400)));
    if has_iproute2_in_etc(node) {
        state.add(Symlink { path: "/usr/share/iproute2".into(), target: "/etc/iproute2".into() });
    }
}

/// Whether iproute2's tables are only in `/etc`, and not in `/usr/share`.
fn has_iproute2_in_etc(node: &NodeConfig) -> bool {
    match node.distribution.project {
        Project::Debian => node.distribution.version < 13.0,
        Project::Ubuntu => (22.0..25.0).contains(&node.distribution.version),
        _ => false,
    }
}
