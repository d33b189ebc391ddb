//! kube-apiserver: a static pod on every control-plane machine and on dedicated API servers, with
//! everything by which it proves its identity and verifies that of others.
//!
//! Source: nodeup/pkg/model/kube_apiserver.go.

mod authentication;
mod credentials;
mod encryption;
mod flags;
mod pod;
mod static_tokens;

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, File, Mode};

use super::paths;

const NAME: &str = "kube-apiserver";

/// The names under which dns-controller publishes a machine's addresses for as long as its API server's pod is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Published {
    /// The API server's.
    ApiServer,
    /// The bootstrap server's too, which is a service of the machine and so has no pod of its own that could name it.
    ApiServerAndBootstrapServer,
}

/// Adds the API server where one runs.
pub(super) fn add(node: &NodeConfig, published: Published, state: &mut DesiredState) {
    let Some(api_server) = &node.api_server else { return };
    credentials::add(node, api_server, state);
    static_tokens::add(node, state);
    authentication::add(node, api_server, state);
    encryption::add(node, api_server, state);
    state.add(File::text(paths::log(NAME), "").mode(Mode(0o400)).create_only());
    state.add(pod::pod(node, api_server, published).manifest_file());
}

/// Where its keys and certificates are.
fn directory(node: &NodeConfig) -> String {
    node.srv_kubernetes(NAME)
}

/// One of its keys, certificates or secret files.
fn file(node: &NodeConfig, name: &str) -> String {
    format!("{}/{name}", directory(node))
}
