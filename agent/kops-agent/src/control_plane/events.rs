//! Events: what people find with `kubectl get events -n kube-system`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kops_agent_plan::diff::sha256_hex;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Error};
use tokio::time::{Instant, timeout};

use super::lease::NAMESPACE;

/// The API server forgets an Event after an hour, so it is said again.
const SAID_AGAIN_AFTER: Duration = Duration::from_secs(60 * 60);
const PATIENCE: Duration = Duration::from_secs(5);

/// Says things about Nodes, each once.
pub struct Events {
    /// kOps lets its controller create Events in its own namespace only.
    events: Api<Event>,
    said: Mutex<BTreeMap<String, Instant>>,
}

impl Events {
    /// Says them by this client.
    pub fn of(client: Client) -> Events {
        Events { events: Api::namespaced(client, NAMESPACE), said: Mutex::default() }
    }

    /// Says why a Node is not dealt with, unless it was said. An Event that does not get through is not worth failing
    /// for: the log has it too.
    pub async fn warn(&self, node: &str, reason: &str, message: &str) {
        // The same Event has the same name, so that several controllers and restarts do not pile them up.
        let digest = sha256_hex(format!("{node} {reason} {message}").as_bytes());
        let name = format!("{node}.{}", &digest[..16]);
        if !self.is_new(&name) {
            return;
        }
        let event = event(&name, node, reason, message);
        match timeout(PATIENCE, self.events.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => {}
            Ok(Err(Error::Api(status))) if status.code == 409 => {}
            Ok(Err(Error::Api(status))) => {
                log::warn!("the Event {reason} about the Node {node} was not created: {}", status.message);
            }
            Ok(Err(error)) => log::warn!("the Event {reason} about the Node {node} was not created: {error}"),
            Err(_) => log::warn!("the Event {reason} about the Node {node} was not created: no answer"),
        }
    }

    fn is_new(&self, name: &str) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        said.retain(|_, at| now.duration_since(*at) < SAID_AGAIN_AFTER);
        said.insert(name.to_owned(), now).is_none()
    }
}

fn event(name: &str, node: &str, reason: &str, message: &str) -> Event {
    let now = Time(Timestamp::now());
    Event {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some(NAMESPACE.into()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Node".into()),
            name: Some(node.into()),
            // A Node is in no namespace, but an Event of this one must be about something in it.
            namespace: Some(NAMESPACE.into()),
            // kubelet's own Events, and so those that `kubectl describe node` looks for, have the name for it.
            uid: Some(node.into()),
            ..ObjectReference::default()
        },
        type_: Some("Warning".into()),
        reason: Some(reason.into()),
        message: Some(message.into()),
        count: Some(1),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        source: Some(EventSource { component: Some("kops-controller".into()), ..EventSource::default() }),
        reporting_component: Some("kops-controller".into()),
        ..Event::default()
    }
}
