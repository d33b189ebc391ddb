//! Checks whether kops-agent can take over from kOps' kops-controller, and whether kops-controller can be ended after the takeover.
//! This check changes nothing.
//!
//! This module collects facts; `kops_agent_cluster::takeover` decides what they mean. If this command lacks a right, or the API server
//! does not answer, a finding is unknown, never "not ready".

mod servers;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, PostParams};
use kube::core::{ApiResource, Object};
use kube::{Client, Error};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use kops_agent_cluster::identity::host::NAMESPACE;
use kops_agent_cluster::pacing::{self, CONTROL_PLANE_LABEL};
use kops_agent_cluster::takeover::{self as decide, Departure, INTERNAL_NAMES, Leaving, UPSTREAM};
use kops_agent_kube::bootstrap_servers::{self, Kubeconfigs};
use kops_agent_kube::lease;
use kops_agent_net::http;
use kops_agent_process::output::error_text;
use kops_agent_process::port::{self, Holder};
use kops_agent_source::cluster_files;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::kops_release::WrittenBy;
use kops_agent_spec::{Cluster, KopsControllerOptions};

use crate::configuration::{options, store};
use crate::hosts;

/// Timeout of each request of a check.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The maximum length of an answer that a message quotes, in characters.
const LONGEST_ANSWER: usize = 200;
/// The API group, resource, name, namespace and verbs of an access review.
type Right = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

/// The rights that the controller needs on the API server. kOps' own controller needs them too.
const RIGHTS: [Right; 4] = [
    ("", "nodes", "", "", &["get", "list", "watch", "patch"]),
    ("", "events", "", lease::NAMESPACE, &["create"]),
    ("coordination.k8s.io", "leases", "", lease::NAMESPACE, &["create"]),
    ("coordination.k8s.io", "leases", lease::NAME, lease::NAMESPACE, &["get", "update"]),
];

/// The folder of the node configurations, in the cluster's folder of the store. The second path sorts after every file in the folder.
const CONFIGURATIONS: &str = "igconfig/node/";
const BEHIND_CONFIGURATIONS: &str = "igconfig/node/\u{7f}";
/// The file from which node configurations are derived if kOps writes no node configurations.
const COMPLETED: &str = "cluster-completed.spec";
/// The right to list `Host`s. The controller needs it for machines with an enrolled key (`server.pki`). By default, kOps does not give it
/// to a controller.
const RIGHT_OF_HOSTS: Right = (hosts::GROUP, hosts::RESOURCE, "", NAMESPACE, &["list"]);
/// The rights on the Leases that store which nodes have a slot (`docs/pacing.md`). By default, kOps gives these rights to no controller.
const RIGHT_OF_SLOTS: Right =
    ("coordination.k8s.io", "leases", "", pacing::NAMESPACE, &["get", "list", "create", "update"]);

#[derive(Clone, Debug)]
pub struct TakeoverOptions {
    /// kops-controller's configuration file.
    pub conf: PathBuf,
    /// The controller's kubeconfig.
    pub kubeconfig: PathBuf,
    /// An administrator's kubeconfig, for checks that list pods. The controller has no right to list pods.
    pub admin_kubeconfig: PathBuf,
    /// kubelet's kubeconfig, which names this machine's Node.
    pub kubelet_kubeconfig: PathBuf,
    /// Folders to read in place of URLs, as `URL=DIR`.
    pub store_mirrors: Vec<String>,
    /// The address at which `kops-agent-controller.service` on this machine answers probes.
    pub health: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    Ready,
    NotReady,
    Unknown,
}

#[derive(Debug, Serialize)]
pub struct Finding {
    pub what: &'static str,
    pub state: State,
    pub why: String,
}

type Answer = (State, String);

fn ready(why: impl Into<String>) -> Answer {
    (State::Ready, why.into())
}

fn not_ready(why: impl Into<String>) -> Answer {
    (State::NotReady, why.into())
}

/// Runs all checks. Fails only if the configuration cannot be read.
pub async fn check(given: &TakeoverOptions) -> Result<Vec<Finding>> {
    let options = options(&given.conf)?;
    let controller = kops_agent_kube::client(Some(&given.kubeconfig));
    let controller = controller.as_ref().map_err(|error| unreachable(error_text(error)));
    let findings = [
        ("kops", release(given, &options).await),
        ("scope", scope(given, &options).await),
        ("rights", rights(controller.clone(), &options).await),
        ("lease", holder(controller.clone()).await),
        ("names", names(given, &options).await),
        ("port", port_of(&options)),
        ("service", service(&given.health, TIMEOUT).await),
        ("servers", servers::servers(controller.clone(), &options).await),
    ];
    Ok(findings.map(|(what, answer)| finding(what, answer)).into())
}

fn finding(what: &'static str, answer: Result<Answer>) -> Finding {
    let (state, why) = answer.unwrap_or_else(|error| (State::Unknown, error_text(&error)));
    Finding { what, state, why }
}

/// Checks whether kops-agent's service can leave this machine: machines must still be able to bootstrap without it. Fails only if the
/// configuration cannot be read.
pub async fn check_back(given: &TakeoverOptions) -> Result<Vec<Finding>> {
    let options = options(&given.conf)?;
    let kubeconfigs = Kubeconfigs { controller: &given.kubeconfig, kubelet: &given.kubelet_kubeconfig };
    let departure = bootstrap_servers::own_departure(Leaving::Service, &options, kubeconfigs).await;
    let answer = departure.map(|departure| match departure {
        Departure::Allowed(why) => ready(format!("the service can leave this machine: {why}")),
        Departure::Refused(why) => {
            not_ready(format!("without the service of this machine, no machine can bootstrap: {why}"))
        }
    });
    Ok(vec![finding("servers", answer)])
}

/// Checks that kops-agent supports the kOps release that wrote the store, because the rules of this release decide how machines
/// are served.
async fn release(given: &TakeoverOptions, options: &KopsControllerOptions) -> Result<Answer> {
    let base = options.config_base.trim_end_matches('/');
    let version = cluster_files::kops_version(&store(&given.store_mirrors)?, base).await;
    let version = version.context("reading which kOps release wrote the state store")?;
    Ok(match WrittenBy::of_store(version.as_deref()) {
        Ok(written_by) if written_by.is_known() => ready(written_by.to_string()),
        Ok(written_by) => (State::Unknown, written_by.to_string()),
        Err(why) => not_ready(why),
    })
}

async fn scope(given: &TakeoverOptions, options: &KopsControllerOptions) -> Result<Answer> {
    if let Some(why) = decide::left_to_upstream(options) {
        return Ok(not_ready(format!(
            "{why}: keep kOps' kops-controller, because kops-agent cannot replace it in this cluster"
        )));
    }
    if decide::kops_writes_no_configurations(options) {
        let base = options.config_base.trim_end_matches('/');
        let store = store(&given.store_mirrors)?;
        let written = store.versions(base, CONFIGURATIONS, BEHIND_CONFIGURATIONS).await;
        let written = written.context("looking for configurations of nodes in the state store")?;
        let cluster = store.versions(base, COMPLETED, COMPLETED).await;
        let cluster = cluster.context("looking for the completed cluster spec in the state store")?;
        if written.is_empty() && cluster.is_empty() {
            return Ok(not_ready(format!(
                "the state store has no configurations of nodes ({base}/{CONFIGURATIONS} is empty), and \
                 kops-agent cannot derive them, because {base}/{COMPLETED} is missing. Run `kops update \
                 cluster --yes`. Or put nodeupconfig.yaml of each group into {base}/{CONFIGURATIONS}, as \
                 `kops-agent config derive` prints it"
            )));
        }
    }
    Ok(ready("kops-agent supports everything in kops-controller's configuration"))
}

async fn rights(client: Result<&Client, Failure>, options: &KopsControllerOptions) -> Result<Answer> {
    let client = client?;
    let has_hosts = options.server.as_ref().is_some_and(|server| server.pki.is_some());
    let mut missing = Vec::new();
    for right in RIGHTS.into_iter().chain(has_hosts.then_some(RIGHT_OF_HOSTS)) {
        missing.append(&mut missing_of(client, right).await?);
    }
    let mut why = Vec::new();
    if !missing.is_empty() {
        why.push(format!(
            "the controller may not {}. kOps installs these rights with its kops-controller. To add them by \
             hand, apply packaging/kubernetes/rbac.yaml, and with server.pki also \
             packaging/kubernetes/hosts-rbac.yaml",
            missing.join(", ")
        ));
    }
    // Without a bootstrap server, nodes cannot request slots.
    let of_slots = match options.server {
        Some(_) => missing_of(client, RIGHT_OF_SLOTS).await?,
        None => Vec::new(),
    };
    if !of_slots.is_empty() {
        why.push(format!(
            "the controller may not {} in the namespace {}, so nodes would restart without a slot. Apply \
             packaging/kubernetes/rbac.yaml, because kOps does not install this right",
            of_slots.join(", "),
            pacing::NAMESPACE
        ));
    }
    Ok(match why.as_slice() {
        [] => ready("the controller has all rights that it needs"),
        why => not_ready(why.join("; ")),
    })
}

/// The verbs in `right` that the API server does not grant to this client, each as `VERB RESOURCE`.
async fn missing_of(client: &Client, right: Right) -> Result<Vec<String>> {
    let (group, resource, name, namespace, verbs) = right;
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut missing = Vec::new();
    for verb in verbs {
        let set = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let attributes = ResourceAttributes {
            group: set(group),
            resource: set(resource),
            name: set(name),
            namespace: set(namespace),
            verb: set(verb),
            ..ResourceAttributes::default()
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                non_resource_attributes: None,
            },
            ..SelfSubjectAccessReview::default()
        };
        let review = within(reviews.create(&PostParams::default(), &review))
            .await
            .context("asking the API server what the controller may do")?;
        if !review.status.is_some_and(|status| status.allowed) {
            missing.push(format!("{verb} {resource}"));
        }
    }
    Ok(missing)
}

async fn holder(client: Result<&Client, Failure>) -> Result<Answer> {
    let client = client?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), lease::NAMESPACE);
    let lease =
        within(leases.get_opt(lease::NAME)).await.context("reading the Lease kops-controller-leader")?;
    let spec = lease.and_then(|lease| lease.spec).unwrap_or_default();
    Ok(match spec.holder_identity.filter(|holder| !holder.is_empty()) {
        None => ready("the Lease is free; the first controller that runs takes it"),
        Some(holder) => {
            let renewed = spec.renew_time.map_or_else(|| "never".to_owned(), |at| at.0.to_string());
            ready(format!(
                "{holder} holds the Lease, renewed {renewed}; kops-agent takes it once {holder} stops"
            ))
        }
    })
}

/// Whether machines still find the bootstrap server after upstream's pods have stopped.
async fn names(given: &TakeoverOptions, options: &KopsControllerOptions) -> Result<Answer> {
    if options.server.is_none() {
        return Ok(ready("the configuration has no bootstrap server, so machines need no name for it"));
    }
    if !is_found_by_dns(given, options).await? {
        return Ok(ready(
            "the cluster has no DNS of its own: machines have the addresses in their user-data",
        ));
    }
    let name = decide::bootstrap_name(&options.cluster_name);
    let client = administrator(&given.admin_kubeconfig)?;
    let nodes: Api<Node> = Api::all(client.clone());
    let selected = ListParams::default().labels(CONTROL_PLANE_LABEL);
    let nodes =
        within(nodes.list_metadata(&selected)).await.context("listing the Nodes of the control plane")?;
    let control_plane: BTreeSet<String> =
        nodes.items.into_iter().filter_map(|node| node.metadata.name).collect();
    let pods: Api<PodObject> =
        Api::namespaced_with(client, lease::NAMESPACE, &ApiResource::erase::<Pod>(&()));
    let pods = within(pods.list(&ListParams::default())).await.context("listing the pods of kube-system")?;
    let pods: Vec<decide::Pod> = pods.items.into_iter().map(pod).collect();
    let missing = decide::unpublished(&name, &pods, &control_plane);
    Ok(match (control_plane.len(), missing.len()) {
        (0, _) => {
            not_ready(format!("no Node has the label {CONTROL_PLANE_LABEL}, so {name} has no addresses"))
        }
        (_, 0) => {
            ready(format!("{name} keeps the addresses of all {} control-plane machines", control_plane.len()))
        }
        (_, _) => not_ready(format!(
            "only kOps' kops-controller publishes {name} ({INTERNAL_NAMES}) for the machines {}. Run \
             `kops-agent converge --controller` on these machines before kOps' kops-controller stops. \
             Otherwise no machine can bootstrap",
            missing.into_iter().collect::<Vec<_>>().join(", ")
        )),
    })
}

fn administrator(kubeconfig: &Path) -> Result<Client> {
    kops_agent_kube::client(Some(kubeconfig)).context(
        "reading the administrator's kubeconfig of --admin-kubeconfig, to list the pods that publish the name of \
         the bootstrap server",
    )
}

async fn is_found_by_dns(given: &TakeoverOptions, options: &KopsControllerOptions) -> Result<bool> {
    let url = format!("{}/{COMPLETED}", options.config_base.trim_end_matches('/'));
    let text = store(&given.store_mirrors)?
        .read(&url)
        .await
        .context("reading whether machines find the bootstrap server by DNS")?;
    Ok(decide::is_found_by_dns(&Cluster::parse(&text, &url)?))
}

/// A pod with only the fields that the checks need. The code for all fields would make this program 2 % larger.
type PodObject = Object<PodSpec, IgnoredAny>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: String,
    host_network: bool,
}

fn pod(pod: PodObject) -> decide::Pod {
    let annotations = pod.metadata.annotations.unwrap_or_default();
    let app = pod.metadata.labels.and_then(|labels| labels.get("k8s-app").cloned());
    decide::Pod {
        name: pod.metadata.name.unwrap_or_default(),
        node: pod.spec.node_name,
        has_host_network: pod.spec.host_network,
        internal_names: annotations.get(INTERNAL_NAMES).cloned().unwrap_or_default(),
        is_of_upstream: app.as_deref() == Some(UPSTREAM),
    }
}

fn port_of(options: &KopsControllerOptions) -> Result<Answer> {
    let Some(port) = bootstrap_servers::port(options)? else {
        return Ok(ready("the configuration has no bootstrap server, so it needs no port"));
    };
    Ok(match port::holder(port)? {
        Holder::Free => ready(format!("port {port} is free; the service takes the port when it starts")),
        Holder::ThisProgram => ready(format!("kops-agent listens on port {port}")),
        Holder::Program(name) if name == UPSTREAM => ready(format!(
            "kOps' kops-controller listens on port {port}; the service waits, and takes the port once kops-controller stops"
        )),
        Holder::Program(name) => {
            not_ready(format!("{name} listens on {port}, the port of the bootstrap server: stop {name}"))
        }
        Holder::NotSeen => (
            State::Unknown,
            format!(
                "a process of another user listens on port {port}; run this command as root to see which \
                 process"
            ),
        ),
    })
}

async fn service(address: &str, within: Duration) -> Result<Answer> {
    let url = format!("http://{address}/readyz");
    let client = http::metadata_client().context("preparing to check kops-agent-controller.service")?;
    let asked = async {
        match client.get(&url).send().await {
            Ok(answer) => Ok((answer.status().is_success(), http::said(answer, LONGEST_ANSWER).await)),
            Err(error) => Err(error),
        }
    };
    let (is_ready, said) = match timeout(within, asked).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) if error.is_connect() => {
            return Ok(not_ready(format!(
                "kops-agent-controller.service does not answer at {url}: run `kops-agent converge --controller` here"
            )));
        }
        Ok(Err(error)) => return Err(error).with_context(|| format!("asking {url}")),
        Err(_) => return Ok((State::Unknown, format!("{url} does not answer within {within:.0?}"))),
    };
    Ok(match is_ready {
        true => ready("kops-agent-controller.service is ready"),
        // The service may only be waiting for its port. Stopping kOps' kops-controller frees the port, so the check reports `Ready`.
        false => ready(format!(
            "kops-agent-controller.service runs, but is not ready: {said}; it becomes ready once kOps' kops-controller stops"
        )),
    })
}

fn unreachable(problem: String) -> Failure {
    Failure::new(Kind::ApiServerUnanswered, problem)
}

async fn within<T>(asking: impl Future<Output = Result<T, Error>>) -> Result<T> {
    match timeout(TIMEOUT, asking).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(unreachable(format!("the API server does not answer within {TIMEOUT:.0?}")).into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Starts a service that answers 503, and returns its address. With `goes_on`, the body never ends. Otherwise the service sends only
    /// the start of the body, and keeps the connection open.
    async fn answering(goes_on: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _ = connection.read(&mut [0; 4096]).await.unwrap();
            connection.write_all(b"HTTP/1.1 503 Oh\r\n\r\nnot yet").await.unwrap();
            while goes_on && connection.write_all(&[b'!'; 1 << 16]).await.is_ok() {}
            std::future::pending::<()>().await;
        });
        address
    }

    #[tokio::test]
    async fn an_answer_without_an_end_is_neither_kept_nor_waited_for() {
        let (state, why) = service(&answering(true).await, Duration::from_secs(600)).await.unwrap();
        assert_eq!(state, State::Ready);
        assert!(why.contains("is not ready: not yet!!!") && why.len() < LONGEST_ANSWER + 200, "{why}");
        let (state, why) = service(&answering(false).await, Duration::from_millis(300)).await.unwrap();
        assert_eq!(state, State::Unknown);
        assert!(why.contains("does not answer within 300ms"), "{why}");
    }
}
