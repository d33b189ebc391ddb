//! etcd-manager: its pods as kOps wrote them, and the authorities from which it issues etcd's certificates.
//!
//! Source: nodeup/pkg/model/manifests.go and etcd_manager_tls.go.

use crate::resolve::NodeConfig;
use crate::resource::{Content, DesiredState, File, Mode, SecretPiece};

use super::paths;

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
        for (file, keyset) in authorities(cluster) {
            state.add(File::text(format!("{directory}/{file}.crt"), node.ca(&keyset)));
            let key = SecretPiece::KeysetPrivateKey { id: node.keypair_id(&keyset).into(), keyset };
            state.add(
                File::new(format!("{directory}/{file}.key"), Content::SecretText(vec![key]))
                    .mode(Mode::PRIVATE),
            );
        }
    }
}

/// File name and keyset of each authority. The API server has one client certificate for the etcd
/// clusters that it uses, so those share the authority for clients.
fn authorities(cluster: &str) -> [(&'static str, String); 3] {
    let clients = match cluster {
        "main" | "events" | "leases" => "etcd-clients-ca".to_owned(),
        cluster => format!("etcd-clients-ca-{cluster}"),
    };
    [
        ("etcd-manager-ca", format!("etcd-manager-ca-{cluster}")),
        ("etcd-peers-ca", format!("etcd-peers-ca-{cluster}")),
        ("etcd-clients-ca", clients),
    ]
}
