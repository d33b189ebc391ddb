//! kube-apiserver: a static pod on every control-plane machine and on dedicated API servers, with the certificates, keys
//! and tokens for its own identity and for verifying clients.
//!
//! Source: nodeup/pkg/model/kube_apiserver.go.

mod authentication;
mod credentials;
mod encryption;
mod files;
mod flags;
mod pod;
mod static_tokens;

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, File, Mode};

use super::paths;
use files::NAME;

pub(super) use pod::Published;

/// Adds the API server, if this machine runs an API server.
pub(super) fn add(node: &NodeConfig, published: Published, state: &mut DesiredState) {
    let Some(api_server) = &node.api_server else { return };
    credentials::add(node, api_server, state);
    static_tokens::add(node, state);
    authentication::add(node, api_server, state);
    encryption::add(node, api_server, state);
    state.add(File::text(paths::log(NAME), "").mode(Mode(0o400)).create_only());
    let manifest = pod::pod(node, api_server, published).manifest_file();
    // Upstream lets all users read the manifest. If a user adds variables, the manifest is private here: a variable can be a secret, and
    // only kubelet reads the manifest, as root.
    state.add(if api_server.config.env.is_empty() { manifest } else { manifest.mode(Mode::PRIVATE) });
}
