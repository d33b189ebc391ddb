//! Connects to the bootstrap server of each control-plane machine, for `controller takeover --check`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use kops_agent_spec::KopsControllerOptions;
use kops_agent_spec::failure::Failure;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::{ApiResource, Object};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Answer, CONTROL_PLANE, bootstrap_port, not_ready, ready, within};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A Node with the addresses that its kubelet or its cloud reports.
type NodeObject = Object<IgnoredAny, Addresses>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Addresses {
    addresses: Vec<NodeAddress>,
}

/// Checks that a bootstrap server listens on each control-plane machine: the server of kops-agent or of kOps' kops-controller. On a machine
/// that replaces another one, neither listens unless its user-data starts kops-agent's server.
pub(super) async fn servers(
    client: Result<&Client, Failure>,
    options: &KopsControllerOptions,
) -> Result<Answer> {
    let Some(port) = bootstrap_port(options)? else {
        return Ok(ready("the configuration has no bootstrap server, so no machine serves others"));
    };
    let client = client?;
    let nodes: Api<NodeObject> = Api::all_with(client.clone(), &ApiResource::erase::<Node>(&()));
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
    let addresses = node.status.unwrap_or_default().addresses;
    let Some(internal) = addresses.into_iter().find(|address| address.type_ == "InternalIP") else {
        return Some(format!("{name} (its Node has no InternalIP)"));
    };
    let address = match internal.address.parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, port),
        Err(error) => return Some(format!("{name} ({}: {error})", internal.address)),
    };
    match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(format!("{name} ({address}: {error})")),
        Err(_) => Some(format!("{name} ({address}: no answer within {CONNECT_TIMEOUT:.0?})")),
    }
}
