//! etcd-manager: its pods as kOps wrote them, and the authorities from which it issues etcd's certificates.
//!
//! Source: nodeup/pkg/model/manifests.go and etcd_manager_tls.go.

use crate::resolve::{NodeConfig, etcd_manager_authorities};
use crate::resource::{DesiredState, File, Mode};

use super::{keypair, paths};

/// Adds the pods and the keys of every etcd cluster with a member on this control-plane machine.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    if !node.is_control_plane() {
        return;
    }
    for url in &node.config.etcd_manifests {
        if let Some(manifest) = node.manifests.get(url) {
            let file = url.rsplit('/').next().unwrap_or(url);
            let name = file.rsplit_once('.').map_or(file, |(name, _)| name);
            state.add(
                File::text(paths::manifest(&format!("etcd-{name}")), manifest.clone()).mode(Mode(0o440)),
            );
        }
    }
    for cluster in &node.config.etcd_cluster_names {
        let directory = format!("/etc/kubernetes/pki/etcd-manager-{cluster}");
        for (file, keyset) in etcd_manager_authorities(cluster) {
            state.add(File::text(format!("{directory}/{file}.crt"), node.ca(&keyset)));
            state.add(keypair::private_key_file(node, &keyset, &format!("{directory}/{file}.key")));
        }
    }
}
