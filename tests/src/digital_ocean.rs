//! DigitalOcean's API as the agent asks it, for as long as its value lives: lists of droplets by a tag, page by page, refusals, and
//! moods.
//!
//! Source: DigitalOcean API v2, "List All Droplets", "Links & Pagination", "HTTP Statuses".

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
pub const TOKEN: &str = "digitalocean-token-for-tests";

/// A droplet.
#[derive(Clone, Debug)]
pub struct Droplet {
    /// Its name.
    pub name: String,
    /// `active`, `off`, …
    pub status: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// Its public address.
    pub public_ipv4: Option<String>,
    /// Its addresses in private networks.
    pub private_ips: Vec<IpAddr>,
}

impl Droplet {
    /// A running worker of a cluster's group, in one private network.
    pub fn of_group(cluster: &str, group: &str, name: &str, private_ip: IpAddr) -> Droplet {
        Droplet {
            name: name.to_owned(),
            status: "active".into(),
            tags: vec![
                format!("KubernetesCluster:{}", cluster.replace('.', "-")),
                format!("kops-instancegroup:{group}"),
                "kops-instance-role:Node".into(),
            ],
            public_ipv4: Some("192.0.2.7".into()),
            private_ips: vec![private_ip],
        }
    }

    fn json(&self, id: u64) -> Value {
        let address = |ip: &str, kind: &str| json!({"ip_address": ip, "netmask": "255.255.240.0", "gateway": "", "type": kind});
        let of_public = self.public_ipv4.iter().map(|ip| address(ip, "public"));
        let of_private = self.private_ips.iter().map(|ip| address(&ip.to_string(), "private"));
        // As there: the public address comes first.
        let v4: Vec<Value> = of_public.chain(of_private).collect();
        json!({"id": id, "name": self.name, "status": self.status, "tags": self.tags, "memory": 8192,
               "created_at": "2026-01-30T23:55:00Z", "networks": {"v4": v4, "v6": []}, "region": {"slug": "nyc3"}})
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
    /// With the beginning of an answer only.
    Truncating,
    /// With a page that there is another one after, always.
    Endless,
    /// That it is elsewhere.
    Redirecting,
    /// Not at all.
    Silent,
}

#[derive(Debug, Default)]
struct State {
    droplets: BTreeMap<u64, Droplet>,
    mood: Mood,
    calls: usize,
}

/// A running API; dropping it stops it.
#[derive(Debug)]
pub struct DigitalOcean {
    state: Arc<Mutex<State>>,
    server: LoopbackServer,
}

impl DigitalOcean {
    /// Starts without a droplet in it.
    ///
    /// # Errors
    /// If there is no free port or no thread to be had.
    pub fn start() -> anyhow::Result<DigitalOcean> {
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
        Ok(DigitalOcean { state, server: LoopbackServer::start("digitalocean", service)? })
    }

    /// Where it is.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Adds a droplet, or changes it.
    pub fn put(&self, id: u64, droplet: Droplet) {
        self.state().droplets.insert(id, droplet);
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
    if request.method() != Method::GET || request.uri().path() != "/v2/droplets" {
        return Some(refusal(404, "not_found"));
    }
    Some(match state.mood {
        Mood::Good => list(request.uri().query().unwrap_or_default(), &state.droplets),
        Mood::Throttling => refusal(429, "too_many_requests"),
        Mood::Down => refusal(503, "service_unavailable"),
        Mood::Babbling => said(200, "<html>Welcome</html>"),
        Mood::Truncating => said(200, "{\"droplets\": [{\"id\": 1, "),
        Mood::Endless => said(200, &json!({"droplets": [], "links": {"pages": {"next": "x"}}}).to_string()),
        Mood::Redirecting => {
            let mut response = said(302, "");
            response
                .headers_mut()
                .insert("location", hyper::header::HeaderValue::from_static("/v2/droplets"));
            response
        }
        Mood::Silent => return None,
    })
}

fn list(query: &str, droplets: &BTreeMap<u64, Droplet>) -> Response<String> {
    let parameters: BTreeMap<String, String> =
        form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let number =
        |name: &str, usual: usize| parameters.get(name).map_or(Some(usual), |text| text.parse().ok());
    let (Some(page), Some(per_page)) = (number("page", 1), number("per_page", 20)) else {
        return refusal(400, "invalid_input");
    };
    if page == 0 || !(1..=200).contains(&per_page) {
        return refusal(400, "invalid_input");
    }
    let is_selected = |droplet: &Droplet| {
        parameters.get("tag_name").is_none_or(|tag| droplet.tags.iter().any(|own| own == tag))
    };
    let all: Vec<Value> = droplets
        .iter()
        .filter(|(_, droplet)| is_selected(droplet))
        .map(|(id, droplet)| droplet.json(*id))
        .collect();
    let of_page: Vec<&Value> = all.iter().skip((page - 1) * per_page).take(per_page).collect();
    let links = match all.len() > page * per_page {
        true => {
            json!({"pages": {"next": format!("https://api.digitalocean.com/v2/droplets?page={}", page + 1)}})
        }
        false => json!({}),
    };
    said(200, &json!({"droplets": of_page, "links": links, "meta": {"total": all.len()}}).to_string())
}

fn refusal(status: u16, code: &str) -> Response<String> {
    said(status, &json!({"id": code, "message": "no"}).to_string())
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
