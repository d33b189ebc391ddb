//! The names of a cluster's Nodes and instance groups, for a shell that completes a command.

use std::path::Path;

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;

use kops_agent_cluster::labels::INSTANCE_GROUP;
use kops_agent_kube::api_error::{ApiError, answer};
use kops_agent_kube::{Chosen, client_without_login, list_pages};

/// Asks the API server for the names of the Nodes, each with its instance group. Runs no login program. `None` without a usable
/// kubeconfig, or if the API server does not answer. Leaves out names with special characters of a shell. Kubernetes has no such names, but
/// a wrong server may return them. The parameters choose the kubeconfig as in [`Chosen::find`].
pub async fn from_api_server(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    of_machine: Option<&Path>,
) -> Option<Vec<(String, String)>> {
    let chosen = Chosen::find(kubeconfig, context, of_machine, |name| std::env::var_os(name)).ok()?;
    let mut names = names_and_groups(client_without_login(&chosen).ok()?).await.ok()?;
    let is_plain = |name: &str| name.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c));
    names.retain(|(node, group)| !node.is_empty() && is_plain(node) && is_plain(group));
    Some(names)
}

/// The names of all Nodes of a cluster, each with its instance group. The group is empty if the Node has no label of a group. Reads only
/// metadata, which may be as stale as the API server's cache.
async fn names_and_groups(client: Client) -> Result<Vec<(String, String)>, ApiError> {
    let nodes: &Api<Node> = &Api::all(client);
    let ask = |page| async move { answer(nodes.list_metadata(&page)).await };
    let named = |PartialObjectMeta { metadata, .. }: PartialObjectMeta<Node>| {
        let mut labels = metadata.labels.unwrap_or_default();
        (metadata.name.unwrap_or_default(), labels.remove(INSTANCE_GROUP).unwrap_or_default())
    };
    list_pages::all(ListParams::default().match_any(), ask, named).await
}
