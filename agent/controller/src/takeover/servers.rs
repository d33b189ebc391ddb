//! Connects to the bootstrap server of each control-plane machine, for `controller takeover --check`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::join_all;
use kops_agent_kube::node_api::{NodeObject, Nodes};
use kops_agent_spec::KopsControllerOptions;
use kube::Client;
use kube::api::ListParams;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Answer, CONTROL_PLANE, bootstrap_port, not_ready, ready, unreachable, within};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Checks that a bootstrap server listens on each control-plane machine: the server of kops-agent or of kOps' kops-controller. On a machine
/// that replaces another one, neither listens unless its user-data starts kops-agent's server.
pub(super) async fn servers(
    client: Result<&Client, String>,
    options: &KopsControllerOptions,
) -> Result<Answer> {
    let Some(port) = bootstrap_port(options)? else {
        return Ok(ready("the configuration has no bootstrap server, so no machine serves others"));
    };
    let client = client.map_err(unreachable)?;
    let nodes = Nodes::new(client.clone()).api();
    let nodes = within(nodes.list(&ListParams::default().labels(CONTROL_PLANE)))
        .await
        .context("listing the Nodes of the control plane")?;
    let count = nodes.items.len();
    let silent: Vec<String> = join_all(nodes.items.into_iter().map(|node| not_serving(node, port)))
        .await
        .into_iter()
        .flatten()
        .collect();
    Ok(match silent.as_slice() {
        [] if count == 0 => not_ready(format!("no Node has the label {CONTROL_PLANE}")),
        [] => ready(format!("a server listens on port {port} of all {count} control-plane machines")),
        silent => not_ready(format!(
            "machines cannot bootstrap at {}. Run `kops-agent converge --controller` on these control \
             planes, and start the service in the group's user-data, so that new machines of the group run it",
            silent.join(", ")
        )),
    })
}

/// The name of a Node on whose machine nothing listens on this port, with the reason.
async fn not_serving(node: NodeObject, port: u16) -> Option<String> {
    let name = node.metadata.name.unwrap_or_default();
    let Some(internal) = node.status.unwrap_or_default().internal_ip else {
        return Some(format!("{name} (its Node has no InternalIP)"));
    };
    let address = SocketAddr::new(internal, port);
    match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(format!("{name} ({address}: {error})")),
        Err(_) => Some(format!("{name} ({address}: no answer within {CONNECT_TIMEOUT:.0?})")),
    }
}
