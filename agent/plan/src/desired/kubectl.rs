//! kubectl and a kubeconfig with full rights, on machines with an API server.
//!
//! Source: nodeup/pkg/model/kubectl.go.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, Directory, File, Mode};

use super::{certificates, paths};

/// Adds kubectl and a kubeconfig with full rights: a copy for root, and a copy for the login user if the machine has one.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let Some(kubectl) = &node.kubectl else { return };
    let path = format!("{}/kubectl", node.distribution.kubernetes_bin);
    state.add(File::new(path, kubectl.program.content()).mode(Mode::EXECUTABLE));

    let subject = certificates::user_in_group("kubecfg", "system:masters");
    let kubeconfig = certificates::issued_kubeconfig(state, node, "kubecfg", subject);
    state.add(File::new(paths::KUBECTL_KUBECONFIG, kubeconfig.clone()).mode(Mode(0o400)));
    if let Some(user) = &kubectl.user {
        let directory = Directory::new(format!("{}/.kube", user.home)).mode(Mode(0o700));
        let file = File::new(format!("{}/config", directory.path), kubeconfig).mode(Mode(0o400));
        state.add(Directory { owner: user.name.clone(), group: user.group.clone(), ..directory });
        state.add(file.owned_by(&user.name).group(&user.group));
    }
}
