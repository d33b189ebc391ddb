//! Hetzner Cloud's API as the agent asks it, for as long as its value lives: lists of servers by a label, page by page,
//! refusals, and moods.
//!
//! Source: Hetzner Cloud API, "Servers", "Label Selector", "Pagination", "Errors".

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use serde_json::{Value, json};

use crate::loopback::LoopbackServer;

/// The token that is taken.
pub const TOKEN: &str = "hcloud-token-for-tests";
/// The label with the name of the cluster.
pub const CLUSTER_LABEL: &str = "kops.k8s.io/cluster";
/// The label with the name of the instance group.
pub const INSTANCE_GROUP_LABEL: &str = "kops.k8s.io/instance-group";

/// A server.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// `running`, `off`, …
    pub status: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its public address.
    pub public_ipv4: Option<String>,
    /// Its addresses in private networks.
    pub private_ips: Vec<IpAddr>,
}

impl Server {
    /// A running worker of a cluster's group, in one private network.
    pub fn of_group(cluster: &str, group: &str, name: &str, private_ip: IpAddr) -> Server {
        let labels = [(CLUSTER_LABEL, cluster), (INSTANCE_GROUP_LABEL, group)];
        Server {
            name: name.to_owned(),
            status: "running".into(),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            public_ipv4: Some("192.0.2.7".into()),
            private_ips: vec![private_ip],
        }
    }

    fn json(&self, id: u64) -> Value {
        let networks: Vec<Value> = self
            .private_ips
            .iter()
            .map(|ip| json!({"network": 1, "ip": ip, "alias_ips": [], "mac_address": "86:00:ff:2a:7d:e1"}))
            .collect();
        let ipv4 = self.public_ipv4.as_ref().map(|ip| json!({"id": 1, "ip": ip, "blocked": false}));
        json!({"id": id, "name": self.name, "status": self.status, "labels": self.labels,
               "created": "2026-01-30T23:55:00+00:00", "private_net": networks,
               "public_net": {"ipv4": ipv4, "ipv6": null, "floating_ips": [], "firewalls": []}})
    }
}

/// How it is to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// As usual.
    #[default]
    Good,
    /// That it is asked too much.
    Throttling,
    /// With an error of its own.
    Down,
    /// What is no JSON.
    Babbling,
    /// That it is elsewhere.
    Redirecting,
    /// Not at all.
    Silent,
}

#[derive(Debug, Default)]
struct State {
    servers: BTreeMap<u64, Server>,
    mood: Mood,
    calls: usize,
}

/// A running API; dropping it stops it.
#[derive(Debug)]
pub struct Hetzner {
    state: Arc<Mutex<State>>,
    server: LoopbackServer,
}

impl Hetzner {
    /// Starts without a server in it.
    ///
    /// # Errors
    /// If there is no free port or no thread to be had.
    pub fn start() -> anyhow::Result<Hetzner> {
        let state = Arc::new(Mutex::new(State::default()));
        let answering = state.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let response = answer(&request, &mut locked(&answering));
            async move {
                match response {
                    Some(response) => Ok::<_, Infallible>(response),
                    None => std::future::pending().await,
                }
            }
        });
        Ok(Hetzner { state, server: LoopbackServer::start("hetzner", service)? })
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("{}/v1", self.server.url())
    }

    /// Adds a server, or changes it.
    pub fn put(&self, id: u64, server: Server) {
        self.state().servers.insert(id, server);
    }

    /// Answers like this from now on.
    pub fn set_mood(&self, mood: Mood) {
        self.state().mood = mood;
    }

    /// How often it was asked.
    pub fn calls(&self) -> usize {
        self.state().calls
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

fn answer(request: &Request<Incoming>, state: &mut State) -> Option<Response<String>> {
    state.calls += 1;
    let token = request.headers().get("authorization").and_then(|token| token.to_str().ok());
    if token != Some(&format!("Bearer {TOKEN}")) {
        return Some(refusal(401, "unauthorized"));
    }
    if request.method() != Method::GET || request.uri().path() != "/v1/servers" {
        return Some(refusal(404, "not_found"));
    }
    Some(match state.mood {
        Mood::Good => list(request.uri().query().unwrap_or_default(), &state.servers),
        Mood::Throttling => refusal(429, "rate_limit_exceeded"),
        Mood::Down => refusal(503, "unavailable"),
        Mood::Babbling => said(200, "<html>Welcome</html>"),
        Mood::Redirecting => {
            let mut response = said(302, "");
            response.headers_mut().insert("location", hyper::header::HeaderValue::from_static("/v1/servers"));
            response
        }
        Mood::Silent => return None,
    })
}

fn list(query: &str, servers: &BTreeMap<u64, Server>) -> Response<String> {
    let parameters: BTreeMap<String, String> =
        form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let number =
        |name: &str, usual: usize| parameters.get(name).map_or(Some(usual), |text| text.parse().ok());
    let (Some(page), Some(per_page)) = (number("page", 1), number("per_page", 25)) else {
        return refusal(400, "invalid_input");
    };
    if page == 0 || !(1..=50).contains(&per_page) {
        return refusal(400, "invalid_input");
    }
    let selector = parameters.get("label_selector").and_then(|selector| selector.split_once("=="));
    let is_selected = |server: &Server| {
        selector.is_none_or(|(key, value)| server.labels.get(key).is_some_and(|own| own == value))
    };
    let all: Vec<Value> = servers
        .iter()
        .filter(|(_, server)| is_selected(server))
        .map(|(id, server)| server.json(*id))
        .collect();
    let of_page: Vec<&Value> = all.iter().skip((page - 1) * per_page).take(per_page).collect();
    let next = (all.len() > page * per_page).then_some(page + 1);
    let pagination =
        json!({"page": page, "per_page": per_page, "next_page": next, "total_entries": all.len()});
    said(200, &json!({"servers": of_page, "meta": {"pagination": pagination}}).to_string())
}

fn refusal(status: u16, code: &str) -> Response<String> {
    said(status, &json!({"error": {"code": code, "message": "no", "details": {}}}).to_string())
}

fn said(status: u16, text: &str) -> Response<String> {
    let mut response = Response::new(text.to_owned());
    if let Ok(status) = hyper::StatusCode::from_u16(status) {
        *response.status_mut() = status;
    }
    response
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
