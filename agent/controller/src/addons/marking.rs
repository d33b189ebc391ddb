//! Marking Nodes that have to be replaced after an update of an add-on.

use k8s_openapi::api::core::v1::Node;
use kops_agent_plan::addons::{NEEDS_UPDATE_ANNOTATION, NeedsRollingUpdate};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use super::api_error::answer;

/// Nodes of one answer.
const PAGE: u32 = 500;

/// Marks the Nodes, and tells how many they are.
///
/// # Errors
/// The first Node that cannot be marked, or why they cannot be listed.
pub async fn mark(client: &Client, which: NeedsRollingUpdate) -> Result<usize, String> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { NEEDS_UPDATE_ANNOTATION: "" } } }));
    let mut page = ListParams::default().limit(PAGE).labels(which.selector().unwrap_or_default());
    let mut marked = 0;
    loop {
        let listed = answer(nodes.list_metadata(&page)).await;
        let listed = listed.map_err(|error| format!("listing the Nodes to mark: {error}"))?;
        for node in listed.items {
            let name = node.metadata.name.unwrap_or_default();
            match answer(nodes.patch_metadata(&name, &PatchParams::default(), &patch)).await {
                Ok(_) => marked += 1,
                // Gone since it was listed.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(format!("marking the Node {name}: {error}")),
            }
        }
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(marked),
        }
    }
}
