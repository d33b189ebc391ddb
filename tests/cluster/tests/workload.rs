//! A workload on all workers: its pods reach each other and their service, and the API server reaches their kubelets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::cluster::{Cluster, Member, has_condition};
use crate::world::REGISTRY;

const PORT: u16 = 8080;
/// The name of the Deployment that every test cluster runs, and of its service.
pub const OWN: &str = "hello";
pub const SERVICE_PORT: u16 = 80;
/// The number of requests to the service. With two machines, the probability that both get a request is above 0.999998.
const ASKED: usize = 20;

struct Pod {
    name: String,
    node: String,
    address: String,
    restarts: u64,
}

/// The name of the guarded workload, of its service and of its PodDisruptionBudget.
pub const GUARDED: &str = "guarded";

/// The number of pods of the guarded workload that [`guard_for_drains`] applies.
pub const DRAINED_PODS: usize = 2;

/// Applies the guarded workload. Its budget lets one pod end at a time, so no two workers are drained at the same time. An evicted pod
/// continues to serve for 5 seconds.
pub fn guard_for_drains(cluster: &Cluster) {
    guard(cluster, DRAINED_PODS, DRAINED_PODS - 1, 5);
}

/// Applies the guarded workload on all workers, and waits until its PodDisruptionBudget counts all `pods`. The budget protects
/// `min_available` pods. An evicted pod continues to serve for `seconds_to_end` seconds.
pub fn guard(cluster: &Cluster, pods: usize, min_available: usize, seconds_to_end: u64) {
    let mut deployment = deployment(GUARDED, pods, "Honor");
    if seconds_to_end > 0 {
        let spec = &mut deployment["spec"]["template"]["spec"];
        spec["terminationGracePeriodSeconds"] = (seconds_to_end + 30).into();
        spec["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": seconds_to_end}}});
    }
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": GUARDED, "namespace": "default"},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": GUARDED}}},
    });
    let items = [deployment, service(GUARDED), budget];
    cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string());
    cluster.until("the budget counts its pods", "poddisruptionbudget", GUARDED, |budget| {
        budget["status"]["currentHealthy"] == pods
    });
}

pub fn keep_guarded(cluster: &Cluster, min_available: usize) {
    let patch = json!({"spec": {"minAvailable": min_available}}).to_string();
    cluster.run_kubectl(&["patch", "poddisruptionbudget", GUARDED, "--type=merge", "--patch", &patch]);
}

/// Removes the guarded workload. Checks that the cluster's own workload runs on all workers.
pub fn unguard(cluster: &Cluster) {
    cluster.run_kubectl(&["delete", "deployment,service,poddisruptionbudget", GUARDED]);
    runs_on_all_workers(cluster);
    pods_reach_each_other(cluster);
}

/// Applies the workload, and waits until it is Available. Checks that each worker has pods of the workload.
pub fn runs_on_all_workers(cluster: &Cluster) {
    cluster.apply(&manifest(cluster.workers().len() * 2).to_string());
    cluster.until("the Deployment is Available", "deployment", OWN, |deployment| {
        has_condition(deployment, "Available")
            && deployment["status"]["readyReplicas"] == deployment["spec"]["replicas"]
    });
    let nodes: BTreeSet<String> = pods_there_are(cluster).into_iter().map(|pod| pod.node).collect();
    let workers: BTreeSet<String> = cluster.workers().iter().map(|worker| worker.id.to_owned()).collect();
    assert_eq!(nodes, workers);
}

/// On each node, one pod sends requests. Requests to pod addresses reach every pod on all machines. Requests to the service address reach
/// pods of all workers.
pub fn pods_reach_each_other(cluster: &Cluster) {
    let pods = pods_there_are(cluster);
    let service = cluster.control_plane().until("the service is there", || cluster.get("service", OWN));
    let of_service = url_of(service["spec"]["clusterIP"].as_str().unwrap(), SERVICE_PORT);
    // Until a restarted kubelet, kube-proxy or API server is healthy, requests may fail, so the test retries.
    for from in first_on_each_node(&pods) {
        for to in &pods {
            let url = url_of(&to.address, PORT);
            let answer = cluster
                .control_plane()
                .until(&format!("{} is answered at {url}", from.name), || get(cluster, from, &url));
            assert_eq!(answer, to.name, "from {} to {url}", from.name);
        }
        cluster.control_plane().until(
            &format!("pods of all workers answer {} at {of_service}", from.name),
            || {
                let answered: Option<BTreeSet<String>> =
                    (0..ASKED).map(|_| get(cluster, from, &of_service)).collect();
                let answered = answered?;
                let by = pods.iter().filter(|pod| answered.contains(&pod.name)).map(|pod| pod.node.as_str());
                (by.collect::<BTreeSet<_>>().len() == cluster.workers().len()).then_some(())
            },
        );
    }
}

/// On each worker, the logs of a pod can be read. The API server reads them from kubelet.
pub fn logs_are_read(cluster: &Cluster) {
    for pod in first_on_each_node(&pods_there_are(cluster)) {
        let worker = cluster.workers().iter().find(|worker| worker.id == pod.node).unwrap();
        // After a restart, kubelet needs some time to find its pods.
        let said = worker
            .machine
            .until(&format!("the logs of {} are read", pod.name), || cluster.kubectl(&["logs", &pod.name]));
        assert!(said.contains("serving at") && said.contains("asked by "), "{}: {said}", pod.name);
    }
}

/// The workload's pods on a Node, each with its number of restarts.
pub fn pods_of(cluster: &Cluster, node: &str) -> Vec<String> {
    on_node(pods_there_are(cluster), node)
}

fn on_node(pods: Vec<Pod>, node: &str) -> Vec<String> {
    let mut pods: Vec<String> = pods
        .into_iter()
        .filter(|pod| pod.node == node)
        .map(|pod| format!("{} {}", pod.name, pod.restarts))
        .collect();
    pods.sort();
    pods
}

/// The workload's pods on each worker, each with its number of restarts.
pub fn pods_of_workers(cluster: &Cluster) -> Vec<Vec<String>> {
    cluster.workers().iter().map(|worker| pods_of(cluster, worker.id)).collect()
}

/// Waits until a worker has at least as many pods as in `before`, and each pod is new or was restarted.
pub fn is_started_again(cluster: &Cluster, worker: &Member, before: &[String]) {
    worker.machine.until("its pods have been started again", || {
        let again = on_node(pods(cluster)?, worker.id);
        (again.len() >= before.len() && again.iter().all(|pod| !before.contains(pod))).then_some(())
    });
}

pub fn url_of(address: &str, port: u16) -> String {
    format!("http://{}", SocketAddr::new(address.parse().unwrap(), port))
}

/// The response to a request from a pod. `None` if the request fails.
fn get(cluster: &Cluster, from: &Pod, url: &str) -> Option<String> {
    cluster.kubectl(&["exec", &from.name, "--", "/hello", "get", url]).map(|said| said.trim().to_owned())
}

/// Whether a pod has ended and will not restart. At a shutdown, kubelet ends the pods of its machine in this way. New pods replace them.
pub fn is_over(pod: &Value) -> bool {
    pod["status"]["phase"] == "Failed" || pod["status"]["phase"] == "Succeeded"
}

/// The workload's pods that have not ended. Waits until the API server lists them.
fn pods_there_are(cluster: &Cluster) -> Vec<Pod> {
    cluster.control_plane().until("the API server says which pods there are", || pods(cluster))
}

/// The workload's pods that have not ended. `None` if the API server does not list them.
fn pods(cluster: &Cluster) -> Option<Vec<Pod>> {
    let there_are = ["get", "pods", "--selector=app=hello", "--output=json"];
    let list: Value = serde_json::from_str(&cluster.kubectl(&there_are)?).unwrap();
    let text = |pod: &Value, pointer: &str| {
        pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let pods = list["items"].as_array().unwrap().iter().filter(|pod| !is_over(pod));
    let pods = pods.map(|pod| Pod {
        name: text(pod, "/metadata/name"),
        node: text(pod, "/spec/nodeName"),
        address: text(pod, "/status/podIP"),
        restarts: pod
            .pointer("/status/containerStatuses/0/restartCount")
            .and_then(Value::as_u64)
            .unwrap_or_default(),
    });
    Some(pods.collect())
}

fn first_on_each_node(pods: &[Pod]) -> Vec<&Pod> {
    let of_node: BTreeMap<&str, &Pod> = pods.iter().rev().map(|pod| (pod.node.as_str(), pod)).collect();
    of_node.into_values().collect()
}

/// A Deployment of pods that serve HTTP, spread over the workers. If `taints_policy` is `Honor`, pods from a cordoned worker may move to
/// other workers. If it is `Ignore`, new pods wait until the worker is schedulable.
pub fn deployment(name: &str, replicas: usize, taints_policy: &str) -> Value {
    let labels = json!({"app": name});
    let container = json!({
        "name": "hello", "image": format!("{REGISTRY}/hello:1"), "args": ["serve", format!(":{PORT}")],
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1},
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "containers": [container], "terminationGracePeriodSeconds": 0,
                // Only a real kubelet sets the label `kubernetes.io/os`, so the selector excludes Nodes without machines.
                "nodeSelector": {"node-role.kubernetes.io/node": "", "kubernetes.io/os": "linux"},
                "tolerations": [{"key": "dedicated", "operator": "Exists"}],
                "topologySpreadConstraints": [{
                    "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                    "nodeTaintsPolicy": taints_policy, "labelSelector": {"matchLabels": labels},
                }],
            },
        }},
    })
}

fn manifest(replicas: usize) -> Value {
    let items = [deployment(OWN, replicas, "Ignore"), service(OWN)];
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": name}, "ports": [{"port": SERVICE_PORT, "targetPort": PORT}]},
    })
}
