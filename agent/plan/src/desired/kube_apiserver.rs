//! kube-apiserver: a static pod on every control-plane machine and on dedicated API servers, with the certificates, keys
//! and tokens for its own identity and for verifying clients.
//!
//! Source: nodeup/pkg/model/kube_apiserver.go.

mod authentication;
mod credentials;
mod flags;
mod pod;
mod static_tokens;

use crate::resolve::{KubeApiServer, NodeConfig};
use crate::resource::{Content, DesiredState, File, Mode, SecretPiece};

use super::paths;

pub(super) use pod::Published;

/// Name of the API server's pod, directory and log.
const NAME: &str = "kube-apiserver";

pub(super) fn add(node: &NodeConfig, published: Published, state: &mut DesiredState) {
    let Some(api_server) = &node.api_server else { return };
    credentials::add(node, api_server, state);
    static_tokens::add(node, state);
    authentication::add(node, api_server, state);
    add_encryption(node, api_server, state);
    state.add(File::text(paths::log(NAME), "").mode(Mode(0o400)).create_only());
    let manifest = pod::pod(node, api_server, published).manifest_file();
    // Upstream lets all users read the manifest. If a user adds variables, the manifest is private here: a variable can be a secret, and
    // only kubelet reads the manifest, as root.
    state.add(if api_server.config.env.is_empty() { manifest } else { manifest.mode(Mode::PRIVATE) });
}

/// The directory of the API server's keys and certificates.
fn directory(node: &NodeConfig) -> String {
    node.srv_kubernetes(NAME)
}

/// The path of a key, a certificate or a secret file of the API server.
fn file(node: &NodeConfig, name: &str) -> String {
    format!("{}/{name}", directory(node))
}

/// The path of the file that configures how the API server encrypts its data in etcd.
fn encryption_file(node: &NodeConfig) -> String {
    file(node, "encryptionconfig.yaml")
}

/// Adds the encryption configuration, which is a secret of the user, if the cluster uses encryption.
fn add_encryption(node: &NodeConfig, api_server: &KubeApiServer, state: &mut DesiredState) {
    if api_server.encrypts {
        let content = Content::SecretText(vec![SecretPiece::Secret("encryptionconfig".into())]);
        state.add(File::new(encryption_file(node), content).mode(Mode::PRIVATE));
    }
}
