//! Marks Nodes for replacement by `kops rolling-update cluster` after an update of an add-on.

use k8s_openapi::api::core::v1::Node;
use kops_agent_cluster::addons::{NEEDS_UPDATE_ANNOTATION, NeedsRollingUpdate};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use serde_json::json;

use kops_agent_kube::api_error::{ApiError, answer};
use kops_agent_kube::list_pages;
use kops_agent_spec::failure::{Failing as _, Failure};

/// Sets the annotation [`NEEDS_UPDATE_ANNOTATION`] on the selected Nodes. Returns how many Nodes got the annotation. Stops
/// at the first Node that cannot be patched. Earlier Nodes keep the annotation.
pub async fn mark(client: &Client, which: NeedsRollingUpdate) -> Result<usize, Failure> {
    let failed = |doing: &str, error: ApiError| Failure::new(error.kind(), format!("{doing}: {error}"));
    let nodes: &Api<Node> = &Api::all(client.clone());
    let selected = ListParams::default().labels(which.selector().unwrap_or_default());
    let ask = |page| async move { answer(nodes.list_metadata(&page)).await };
    let name = |node: PartialObjectMeta<Node>| node.metadata.name.unwrap_or_default();
    let names = list_pages::all(selected, ask, name).await;
    let names = names.map_err(|error| failed("listing the Nodes to mark", error))?;
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { NEEDS_UPDATE_ANNOTATION: "" } } }));
    let mut marked = 0;
    for name in names {
        match answer(nodes.patch_metadata(&name, &PatchParams::default(), &patch)).await {
            Ok(_) => marked += 1,
            // The Node was deleted after the listing.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(failed(&format!("marking the Node {name}"), error)),
        }
    }
    Ok(marked)
}
