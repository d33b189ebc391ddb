//! Finds the control planes at which machines can bootstrap: a server of kops-agent or of kOps' kops-controller listens there.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::join_all;
use kops_agent_cluster::fleet::{CONTROLLER, RUNNING};
use kops_agent_cluster::pacing::CONTROL_PLANE_LABEL;
use kops_agent_cluster::takeover::{
    ControlPlane, Departure, Leaving, OtherServer, PODS_OF_AGENT, UPSTREAM, departure, serves_machines,
};
use kops_agent_process::port::{self, Holder};
use kops_agent_spec::KopsControllerOptions;
use kops_agent_spec::failure::{Failure, Kind};
use kube::Client;
use kube::api::ListParams;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::api_error::{ApiError, answer};
use crate::client::client_asking_once;
use crate::node_api::{NodeObject, Nodes};
use crate::own_node::OwnNode;

/// The timeout of the list of control planes.
const LIST_TIMEOUT: Duration = Duration::from_secs(15);
/// The timeout of a connection to a control plane.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of all requests and connections of [`own_departure`] together.
const ASKED_WITHIN: Duration = Duration::from_secs(20);

/// The port of the bootstrap server. `None` if kops-controller's configuration has no bootstrap server.
pub fn port(options: &KopsControllerOptions) -> Result<Option<u16>> {
    let Some(server) = &options.server else { return Ok(None) };
    let number = server.listen.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    match number {
        Some(_) => Ok(number),
        None => {
            let problem =
                format!("server.Listen of kops-controller's configuration has no port: {:?}", server.listen);
            Err(Failure::new(Kind::ControlPlaneSettings, problem).into())
        }
    }
}

/// Connects to the bootstrap server of each control plane.
pub async fn control_planes(client: &Client, port: u16) -> Result<Vec<ControlPlane>> {
    let nodes = Nodes::new(client.clone()).api();
    let selected = ListParams::default().labels(CONTROL_PLANE_LABEL);
    let nodes = match timeout(LIST_TIMEOUT, answer(nodes.list(&selected))).await {
        Ok(nodes) => nodes,
        Err(_) => Err(ApiError::Unanswered(format!("timeout after {} s", LIST_TIMEOUT.as_secs()))),
    };
    let nodes = nodes.context("listing the Nodes of the control plane")?;
    Ok(join_all(nodes.items.into_iter().map(|node| control_plane(node, port))).await)
}

async fn control_plane(node: NodeObject, port: u16) -> ControlPlane {
    let annotations = node.metadata.annotations.unwrap_or_default();
    let found = ControlPlane {
        node: node.metadata.name.unwrap_or_default(),
        runs_controller: annotations.get(CONTROLLER).is_some_and(|value| value == RUNNING),
        ..ControlPlane::default()
    };
    let Some(internal_ip) = node.status.unwrap_or_default().internal_ip_text else {
        return ControlPlane { silent: Some("its Node has no InternalIP".to_owned()), ..found };
    };
    match internal_ip.parse::<IpAddr>() {
        Ok(address) => {
            let address = SocketAddr::new(address, port);
            ControlPlane { address: address.to_string(), silent: silent(address).await, ..found }
        }
        Err(error) => ControlPlane { address: internal_ip, silent: Some(error.to_string()), ..found },
    }
}

/// Why a connection to the address fails. `None` if it succeeds.
async fn silent(address: SocketAddr) -> Option<String> {
    match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!("no answer within {CONNECT_TIMEOUT:.0?}")),
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Kubeconfigs<'a> {
    /// The kubeconfig of kops-agent's controller. It gives the right to list Nodes.
    pub controller: &'a Path,
    /// kubelet's kubeconfig. It gives the right to list the pods of this machine's Node. The certificate in it has the name of this
    /// Node.
    pub kubelet: &'a Path,
}

/// Whether the bootstrap server of this machine may be removed. Returns within 20 seconds.
pub async fn own_departure(
    leaving: Leaving,
    options: &KopsControllerOptions,
    kubeconfigs: Kubeconfigs<'_>,
) -> Result<Departure> {
    let Some(port) = port(options)?.filter(|_| serves_machines(options)) else {
        return Ok(Departure::Allowed("machines of this cluster do not bootstrap at kops-agent".to_owned()));
    };
    if leaving == Leaving::Service && port::holder(port)? == Holder::Program(UPSTREAM.to_owned()) {
        return Ok(departure(leaving, &[], OtherServer::Listens));
    }
    let asked = async {
        let own = OwnNode::new(kubeconfigs.kubelet).context("finding the Node of this machine")?;
        let client = client_asking_once(kubeconfigs.controller)?;
        let mut others = control_planes(&client, port).await?;
        others.retain(|other| other.node != own.name);
        let is_alone = others.is_empty() && leaving == Leaving::Service;
        let here = match is_alone && own.has_system_pod(&[UPSTREAM, PODS_OF_AGENT]).await? {
            true => OtherServer::Waits,
            false => OtherServer::Absent,
        };
        Ok::<_, anyhow::Error>(departure(leaving, &others, here))
    };
    timeout(ASKED_WITHIN, asked).await.unwrap_or_else(|_| {
        Err(ApiError::Unanswered(format!("timeout after {} s", ASKED_WITHIN.as_secs())).into())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_port_is_part_of_the_servers_address() {
        let port_of = |more: &str| {
            let text = format!("{{clusterName: c, cloud: aws{more}}}");
            port(&KopsControllerOptions::parse(text.as_bytes(), "config.yaml").unwrap())
        };
        assert_eq!(port_of("").unwrap(), None);
        for listen in [":3988", "127.0.0.1:3988", "[::]:3988"] {
            assert_eq!(
                port_of(&format!(", server: {{Listen: '{listen}'}}")).unwrap(),
                Some(3988),
                "{listen}"
            );
        }
        let error = port_of(", server: {Listen: '127.0.0.1'}").unwrap_err();
        assert!(error.to_string().contains("has no port"), "{error}");
    }

    #[tokio::test]
    async fn a_node_without_a_usable_address_is_silent() {
        let node = |address: serde_json::Value, annotations: serde_json::Value| {
            serde_json::from_value::<NodeObject>(serde_json::json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "annotations": annotations},
                "spec": {}, "status": {"addresses": [address]},
            }))
            .unwrap()
        };
        let running = serde_json::json!({CONTROLLER: RUNNING});
        let hostname = serde_json::json!({"type": "Hostname", "address": "a"});
        let found = control_plane(node(hostname, running), 3988).await;
        assert!(found.runs_controller);
        assert_eq!(found.why_silent().unwrap(), "a (its Node has no InternalIP)");
        let wrong = serde_json::json!({"type": "InternalIP", "address": "x"});
        let found = control_plane(node(wrong, serde_json::json!({CONTROLLER: "other"})), 3988).await;
        assert!(!found.runs_controller);
        assert!(found.why_silent().unwrap().starts_with("a (x: "), "{found:?}");
    }
}
