//! Events, as `kubectl get events -n kube-system` shows them.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kops_agent_process::output;
use kops_agent_spec::digest::sha256_hex;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Error};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::lease::{self, NAMESPACE};

/// Time after which an Event about a lasting problem is created again. The API server deletes an Event after an hour.
const SAID_AGAIN_AFTER: Duration = Duration::from_secs(60 * 60);
/// Timeout of the creation of an Event, including the wait for a free slot. If the creation fails, the next reconcile
/// of the Node retries it.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of Events that are created at the same time. Each creation needs a connection, and a wrong cluster
/// name causes an Event for every Node.
const AT_ONCE: usize = 8;

/// Maximum length of an Event's message, in characters.
const LONGEST_MESSAGE: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    Warning,
}

macro_rules! reasons {
    ($($reason:ident)+) => {
        /// The reason of an Event. A reason never changes, because alerts and scripts select Events by it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason {
            $($reason,)+
            /// The reason of a decision about a Node, such as `InstanceNotFound`.
            OfDecision(&'static str),
        }

        impl Reason {
            /// All reasons except [`Reason::OfDecision`].
            pub const ALL: &[Reason] = &[$(Reason::$reason),+];

            pub fn name(self) -> &'static str {
                match self {
                    $(Reason::$reason => stringify!($reason),)+
                    Reason::OfDecision(reason) => reason,
                }
            }
        }
    };
}

reasons! {
    AddonApplied
    AddonFailed
    AddonFieldsTakenOver
    AddonObjectDeleted
    AddonPassedOver
    AddonPaused
    ChannelUnreadable
    CIDRNotAvailable
    CloudUnavailable
    LabelsLeftOut
    RoleLabelsRemoved
    RolloutFailed
    RolloutPolicyRefused
}

pub struct Events {
    /// The namespace is fixed: kOps lets its controller create Events in this namespace only.
    events: Api<Event>,
    /// The component in the source field of an Event.
    component: &'static str,
    said: Mutex<BTreeMap<String, Instant>>,
    slots: Semaphore,
}

impl Events {
    /// Creates Events as the component kops-controller.
    pub fn new(client: Client) -> Events {
        Events::of_component(client, "kops-controller")
    }

    pub fn of_component(client: Client, component: &'static str) -> Events {
        Events {
            events: Api::namespaced(client, NAMESPACE),
            component,
            said: Mutex::default(),
            slots: Semaphore::new(AT_ONCE),
        }
    }

    /// Creates a warning about a Node, unless the same warning was created within the last hour. A failure is only
    /// logged, because the log also has the warning.
    pub async fn warn(&self, node: &str, reason: Reason, message: &str) {
        self.say(Kind::Warning, about_node(node), reason, message).await;
    }

    /// Creates a warning about the controller itself. The object of the Event is the controller's Lease.
    pub async fn warn_of_controller(&self, reason: Reason, message: &str) {
        self.say(Kind::Warning, about_lease(), reason, message).await;
    }

    /// Creates a warning about add-ons. The object of the Event is the namespace kube-system.
    pub async fn warn_of_addons(&self, reason: Reason, message: &str) {
        self.say(Kind::Warning, about_namespace(), reason, message).await;
    }

    /// Creates a normal Event about add-ons. The object of the Event is the namespace kube-system.
    pub async fn tell_of_addons(&self, reason: Reason, message: &str) {
        self.say(Kind::Normal, about_namespace(), reason, message).await;
    }

    async fn say(&self, kind: Kind, about: ObjectReference, reason: Reason, message: &str) {
        let reason = reason.name();
        let object = about.name.clone().unwrap_or_default();
        let message = &output::one_line(message, LONGEST_MESSAGE);
        // Equal Events have equal names. So several controllers, or one controller after a restart, create no copies.
        let digest = sha256_hex(format!("{object} {reason} {message}").as_bytes());
        let name = format!("{object}.{}", &digest[..16]);
        if self.was_said(&name) {
            return;
        }
        let create = async {
            let Ok(_slot) = self.slots.acquire().await else { return Ok(()) };
            let event = self.event(kind, &name, about, reason, message);
            self.events.create(&PostParams::default(), &event).await.map(drop)
        };
        let problem = match timeout(TIMEOUT, create).await {
            Ok(Ok(())) => return self.is_said(name),
            Ok(Err(Error::Api(status))) if status.code == 409 => return self.is_said(name),
            Ok(Err(Error::Api(status))) => status.message,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        log::warn!("the Event {reason} about {object} was not created: {problem}");
    }

    fn was_said(&self, name: &str) -> bool {
        let mut said = self.said.lock();
        let now = Instant::now();
        said.retain(|_, at| now.duration_since(*at) < SAID_AGAIN_AFTER);
        said.contains_key(name)
    }

    fn is_said(&self, name: String) {
        self.said.lock().insert(name, Instant::now());
    }

    fn event(&self, kind: Kind, name: &str, about: ObjectReference, reason: &str, message: &str) -> Event {
        let now = Time(Timestamp::now());
        let component = Some(self.component.to_owned());
        let kind = match kind {
            Kind::Normal => "Normal",
            Kind::Warning => "Warning",
        };
        Event {
            metadata: ObjectMeta {
                name: Some(name.into()),
                namespace: Some(NAMESPACE.into()),
                ..ObjectMeta::default()
            },
            involved_object: about,
            type_: Some(kind.into()),
            reason: Some(reason.into()),
            message: Some(message.into()),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            source: Some(EventSource { component: component.clone(), ..EventSource::default() }),
            reporting_component: component,
            ..Event::default()
        }
    }
}

fn about_node(node: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(node.into()),
        // A Node has no namespace, but the namespace of an Event's object must equal the namespace of the Event.
        namespace: Some(NAMESPACE.into()),
        // `kubectl describe node` finds Events by this UID. kubelet's Events also have the name of the Node as the
        // UID.
        uid: Some(node.into()),
        ..ObjectReference::default()
    }
}

fn about_namespace() -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Namespace".into()),
        name: Some(NAMESPACE.into()),
        // The namespace of an Event's object must equal the namespace of the Event.
        namespace: Some(NAMESPACE.into()),
        ..ObjectReference::default()
    }
}

fn about_lease() -> ObjectReference {
    ObjectReference {
        api_version: Some("coordination.k8s.io/v1".into()),
        kind: Some("Lease".into()),
        name: Some(lease::NAME.into()),
        namespace: Some(NAMESPACE.into()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use kube::Config;
    use serde_json::json;
    use tokio::sync::Barrier;

    use super::*;
    use kops_agent_tests::test_server::{TestServer, text};

    fn events(server: &TestServer) -> Events {
        kops_agent_net::tls::install_provider();
        Events::new(Client::try_from(Config::new(server.url.parse().unwrap())).unwrap())
    }

    #[tokio::test]
    async fn a_failed_event_is_sent_again_and_a_created_event_is_not() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        // The first request fails, the second creates the Event, and the third finds an existing Event.
        let server = TestServer::start(move |_| {
            let code = [500, 201, 409][count.fetch_add(1, Ordering::SeqCst).min(2)];
            let kind = if code == 201 { "Event" } else { "Status" };
            let answer = json!({"apiVersion": "v1", "kind": kind, "metadata": {}, "involvedObject": {},
                                "status": "Failure", "message": "no", "reason": "no", "code": code});
            async move { Ok(text(code, &answer.to_string())) }
        })
        .await;
        let events = events(&server);
        for (reason, expected) in [
            (Reason::AddonFailed, 1),
            (Reason::AddonFailed, 2),
            (Reason::AddonFailed, 2),
            (Reason::AddonPaused, 3),
            (Reason::AddonPaused, 3),
        ] {
            events.warn("i-1", reason, "it is another's").await;
            assert_eq!(asked.load(Ordering::SeqCst), expected, "{reason:?}");
        }
    }

    #[tokio::test]
    async fn few_events_are_sent_at_once() {
        let under_way = Arc::new(Semaphore::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        // The server answers the first requests only when the maximum number of requests is in flight.
        let (now, full, come) = (under_way.clone(), Arc::new(Barrier::new(AT_ONCE)), AtomicUsize::new(0));
        let max = most.clone();
        let server = TestServer::start(move |_| {
            let (now, full, max) = (now.clone(), full.clone(), max.clone());
            let is_first = come.fetch_add(1, Ordering::SeqCst) < AT_ONCE;
            async move {
                now.add_permits(1);
                max.fetch_max(now.available_permits(), Ordering::SeqCst);
                if is_first {
                    full.wait().await;
                }
                // If the limit does not work, more requests arrive during this pause.
                tokio::time::sleep(Duration::from_millis(50)).await;
                now.forget_permits(1);
                Ok(text(409, r#"{"apiVersion":"v1","kind":"Status","status":"Failure","code":409}"#))
            }
        })
        .await;
        let events = events(&server);
        let nodes: Vec<String> = (0..5 * AT_ONCE).map(|number| format!("i-{number}")).collect();
        join_all(nodes.iter().map(|node| events.warn(node, Reason::AddonFailed, "it is another's"))).await;
        assert_eq!(most.load(Ordering::SeqCst), AT_ONCE);
        assert!(
            nodes.iter().all(|node| events
                .said
                .lock()
                .keys()
                .any(|name| name.starts_with(&format!("{node}."))))
        );
    }
}
