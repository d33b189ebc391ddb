//! Cordons this node, evicts its pods and uncordons it, with kubelet's credentials. NodeRestriction lets a kubelet change its own
//! Node and evict the pods that are bound to it, and nothing of other nodes.

use std::path::Path;

use hyper::Request;
use kops_agent_cluster::pacing::Versions;
use kops_agent_cluster::pacing::drain::{Cordon, Leaving, cordon_time, leaving};
use kops_agent_process::output::error_text;
use kube::Client;
use serde_json::Value;
use time::OffsetDateTime;

use super::statement::{FIELD_MANAGER, Untold, own_name, versions};
use crate::api_error::{ApiError, answer};
use crate::client::client_asking_once;
use crate::node_api::{Nodes, pods_on};
use crate::node_watch::{LIST_TIMEOUT, NodeWatch};

/// Maximum number of attempts to patch the Node. An attempt fails if another client changes the Node at the same
/// time.
const TRIES: u32 = 5;
/// The API server's status code if a PodDisruptionBudget does not allow an eviction now.
const TOO_MANY_REQUESTS: u16 = 429;

pub struct OwnNode {
    client: Client,
    pub name: String,
}

/// A pod that is still on the node.
pub struct Remaining {
    pub pod: Leaving,
    /// Why the API server does not evict the pod now. Empty if the eviction was accepted, or if the pod is
    /// terminating.
    pub why: String,
}

impl OwnNode {
    /// Reads the Node's name from a kubelet's kubeconfig.
    pub fn new(kubeconfig: &Path) -> Result<OwnNode, Untold> {
        let name = own_name(kubeconfig)?;
        let client = client_asking_once(kubeconfig);
        Ok(OwnNode { client: client.map_err(|error| Untold::Refused(error_text(&error)))?, name })
    }

    /// Cordons the Node. Returns `false` if an operator has already cordoned the Node. If this run executes an order
    /// to reboot, `ordered` is the time of the order.
    pub async fn cordon(&self, ordered: Option<OffsetDateTime>) -> Result<bool, ApiError> {
        self.change(|cordon| cordon.cordoned(&cordon_time(OffsetDateTime::now_utc(), ordered))).await
    }

    pub async fn is_cordoned_by_a_run(&self) -> Result<bool, ApiError> {
        let node = self.ask("GET", &format!("/api/v1/nodes/{}", self.name), None).await?;
        Ok(Cordon::from_node(&node).is_of_a_run)
    }

    /// Uncordons the Node if a run has cordoned it. Returns whether the Node was uncordoned.
    pub async fn uncordon(&self) -> Result<bool, ApiError> {
        self.change(Cordon::uncordoned).await
    }

    /// Reads the Node, and patches it if there is something to change. Returns whether the Node was patched.
    async fn change(&self, patch: impl Fn(&Cordon) -> Option<Value>) -> Result<bool, ApiError> {
        let path = format!("/api/v1/nodes/{}", self.name);
        let mut tries = 0;
        loop {
            let cordon = Cordon::from_node(&self.ask("GET", &path, None).await?);
            let Some(patch) = patch(&cordon) else { return Ok(false) };
            tries += 1;
            let path = format!("{path}?fieldManager={FIELD_MANAGER}");
            match self.ask("PATCH", &path, Some(&patch)).await {
                Err(ApiError::Refused(status)) if status.code == 409 && tries < TRIES => {}
                patched => return patched.map(|_| true),
            }
        }
    }

    /// Requests one eviction for each pod that has to leave the node. Returns the pods that are still there.
    pub async fn evict(&self) -> Result<Vec<Remaining>, ApiError> {
        let list = kube::core::Request::new("/api/v1/pods").list(&pods_on(&self.name));
        let list = list.map_err(|error| ApiError::Unanswered(error.to_string()))?;
        let pods = leaving(answer(self.client.request(list)).await?)
            .map_err(|invalid| ApiError::Unanswered(invalid.to_string()))?;
        let mut remaining = Vec::new();
        for pod in pods {
            let mut why = String::new();
            if !pod.is_ending {
                let path = format!("/api/v1/namespaces/{}/pods/{}/eviction", pod.namespace, pod.name);
                match self.ask("POST", &path, Some(&pod.eviction())).await {
                    Ok(_) => {}
                    Err(ApiError::Refused(status)) if status.code == TOO_MANY_REQUESTS => {
                        why = status.message
                    }
                    // The pod is gone, or a different pod now has its name.
                    Err(ApiError::Refused(status)) if matches!(status.code, 404 | 409) => continue,
                    // If one eviction is rejected, the other pods are still evicted.
                    Err(error @ ApiError::Refused(_)) => why = error.to_string(),
                    Err(error) => return Err(error),
                }
            }
            remaining.push(Remaining { pod, why });
        }
        Ok(remaining)
    }

    /// Whether the Node has a pod in `kube-system` whose label `k8s-app` is in `apps`. Pods that have ended or are
    /// being deleted do not count.
    pub async fn has_system_pod(&self, apps: &[&str]) -> Result<bool, ApiError> {
        let selected = pods_on(&self.name).labels(&format!("k8s-app in ({})", apps.join(",")));
        let list = kube::core::Request::new("/api/v1/namespaces/kube-system/pods").list(&selected);
        let list = list.map_err(|error| ApiError::Unanswered(error.to_string()))?;
        let pods: Value = answer(self.client.request(list)).await?;
        let pods = pods["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let has_ended = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
        Ok(pods.iter().any(|pod| pod["metadata"]["deletionTimestamp"].is_null() && !has_ended(pod)))
    }

    pub async fn versions(&self) -> Result<Versions, ApiError> {
        Ok(versions(&answer(self.nodes().api().get(&self.name)).await?))
    }

    /// The value of an annotation of the Node. `None` if the Node does not have the annotation.
    pub(crate) async fn annotation(&self, name: &str) -> Result<Option<String>, ApiError> {
        let node = answer(self.nodes().api().get(&self.name)).await?;
        Ok(node.metadata.annotations.and_then(|mut annotations| annotations.remove(name)))
    }

    pub async fn annotate(&self, name: &str, value: &str) -> Result<(), ApiError> {
        self.nodes().annotate(FIELD_MANAGER, &self.name, name, value.into()).await
    }

    pub fn watch(&self) -> NodeWatch {
        NodeWatch::of_node(self.nodes().api(), LIST_TIMEOUT, &self.name)
    }

    fn nodes(&self) -> Nodes {
        Nodes::new(self.client.clone())
    }

    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        let content_type =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", content_type)
            .body(body.map(|body| body.to_string().into_bytes()).unwrap_or_default());
        let request = request.map_err(|error| ApiError::Unanswered(error.to_string()))?;
        answer(self.client.request(request)).await
    }
}
