//! The containers of a node's pods.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kops_agent_cluster::pacing::drain::MIRROR;
use kops_agent_cluster::rollout::{Container, Containers};
use kops_agent_spec::failure::{Failing as _, Failure};
use kube::Client;
use kube::api::{Api, Object};
use kube::core::ApiResource;
use serde::Deserialize;
use time::OffsetDateTime;

use kops_agent_kube::api_error::answer;
use kops_agent_kube::node_api::pods_on;

/// The maximum number of concurrent list requests.
const AT_ONCE: usize = 16;
/// The maximum number of pods that the comparison reads from a node. One page of a list holds them, so each node needs
/// only one call.
const MOST_PODS: u32 = 500;

/// A pod with only the fields that the comparison needs.
type PodObject = Object<PodSpec, PodStatus>;

#[derive(Clone, Debug, Default, Deserialize)]
struct PodSpec {}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus {
    name: String,
    restart_count: u32,
    state: ContainerState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Waiting>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: String,
}

pub(super) struct Pods {
    api: Api<PodObject>,
}

impl Pods {
    pub(super) fn new(client: Client) -> Pods {
        Pods { api: Api::all_with(client, &ApiResource::erase::<Pod>(&())) }
    }

    /// The containers on each of these nodes, or why they are unknown. Makes one call per node.
    pub(super) async fn list(
        &self,
        nodes: &BTreeSet<String>,
    ) -> BTreeMap<String, Result<Containers, Failure>> {
        stream::iter(nodes.clone())
            .map(|node| async move {
                let containers = self.of_node(&node).await;
                (node, containers)
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await
    }

    async fn of_node(&self, node: &str) -> Result<Containers, Failure> {
        let selected = pods_on(node).limit(MOST_PODS);
        let pods = answer(self.api.list(&selected))
            .await
            .map_err(|error| Failure::new(error.kind(), format!("listing its pods: {error}")))?;
        Ok(pods.items.into_iter().flat_map(containers).collect())
    }
}

/// The containers and init containers of a pod, by `NAMESPACE/POD/CONTAINER`.
fn containers(pod: PodObject) -> Vec<(String, Container)> {
    let metadata = pod.metadata;
    let pod_name =
        format!("{}/{}", metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
    let is_of_static_pod = metadata.annotations.is_some_and(|annotations| annotations.contains_key(MIRROR));
    let created = metadata
        .creation_timestamp
        .and_then(|created| OffsetDateTime::from_unix_timestamp(created.0.as_second()).ok());
    let status = pod.status.unwrap_or_default();
    let statuses = status.container_statuses.into_iter().chain(status.init_container_statuses);
    statuses
        .map(|status| {
            let waits_for = status.state.waiting.map(|waiting| waiting.reason).unwrap_or_default();
            let container = Container {
                restarts: status.restart_count,
                is_looping: waits_for == "CrashLoopBackOff",
                is_of_static_pod,
                created,
            };
            (format!("{pod_name}/{}", status.name), container)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use kops_agent_tests::test_server::{TestServer, text};
    use kube::Config;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use time::macros::datetime;

    use super::*;

    fn pod(name: &str, annotations: Value, status: Value) -> Value {
        json!({
            "metadata": {
                "name": name, "namespace": "kube-system", "annotations": annotations,
                "creationTimestamp": "2026-11-29T00:00:00Z",
            },
            "spec": {"nodeName": "a"}, "status": status,
        })
    }

    #[test]
    fn restarts_and_crash_loops_of_a_pod_are_read() {
        let status = json!({
            "containerStatuses": [
                {"name": "c", "restartCount": 7, "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}},
                {"name": "d", "restartCount": 1, "state": {"running": {"startedAt": "2026-11-29T00:00:00Z"}}},
            ],
            "initContainerStatuses": [{"name": "i", "restartCount": 0, "state": {"waiting": {"reason": "PodInitializing"}}}],
        });
        let read = |annotations: Value| -> BTreeMap<String, Container> {
            let pod = pod("p", annotations, status.clone());
            containers(serde_json::from_value(pod).unwrap()).into_iter().collect()
        };
        let containers = read(json!({}));
        let created = Some(datetime!(2026-11-29 00:00 UTC));
        let looping = Container { restarts: 7, is_looping: true, is_of_static_pod: false, created };
        assert_eq!(containers["kube-system/p/c"], looping);
        let running = Container { restarts: 1, is_looping: false, ..looping.clone() };
        assert_eq!(containers["kube-system/p/d"], running);
        assert_eq!(containers["kube-system/p/i"], Container { restarts: 0, ..running });
        assert!(read(json!({MIRROR: "digest"})).values().all(|container| container.is_of_static_pod));
        let pending = pod("p", json!({}), json!({"phase": "Pending"}));
        assert!(super::containers(serde_json::from_value(pending).unwrap()).is_empty());
    }

    #[tokio::test]
    async fn a_node_takes_one_bounded_call() {
        kops_agent_net::tls::install_provider();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let said = asked.clone();
        let server = TestServer::start(move |request| {
            said.lock().push(request.uri().to_string());
            let more =
                json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"continue": "more"}, "items": []});
            async move { Ok(text(200, &more.to_string())) }
        })
        .await;
        let pods = Pods::new(Client::try_from(Config::new(server.url.parse().unwrap())).unwrap());
        let listed = pods.list(&["a".to_owned(), "b".to_owned()].into()).await;
        assert!(listed.values().all(Result::is_ok) && listed.len() == 2, "{listed:?}");
        let mut asked = asked.lock().clone();
        asked.sort();
        let of = |node: &str| format!("/api/v1/pods?&fieldSelector=spec.nodeName%3D{node}&limit=500");
        assert_eq!(asked, [of("a"), of("b")]);
    }
}
