//! Tokens of Keystone, OpenStack's identity service, and the endpoints of services in its catalog.
//!
//! Source: Identity API v3, "Authentication and token management"; keystonemiddleware and Nova's `nova/api/openstack/wsgi.py` for
//! how errors are written.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kops_agent_net::http::{HttpError, innermost_cause};
use kops_agent_spec::terminal::one_line;
use reqwest::Client;
use reqwest::header::HeaderValue;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::settings::{AUTH_URL, INTERFACE, REGION, Settings};
use crate::api::{self, Api, ApiError, ErrorBody, Meaning, Question, null_is_empty};
use crate::calls::CloudCalls;
use crate::inventory::{Login, Session};
use crate::token_cache::{Issued, TokenCache};

/// The header with the new token in Keystone's response.
const SUBJECT_TOKEN: &str = "x-subject-token";
/// The header with the token in a request.
pub const AUTH_TOKEN: &str = "x-auth-token";
/// The maximum size of a response, in bytes. A catalog has about a hundred endpoints of 300 bytes.
const LONGEST_ANSWER: usize = 1 << 20;
/// The maximum number of regions in a message.
const MOST_REGIONS: usize = 10;
/// The maximum number of characters of a region's name in a message.
const LONGEST_REGION: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(10);
const ACTION: &str = "tokens.create";

pub(crate) static API: Api = Api {
    name: "Keystone",
    limited: "login",
    read,
    meaning,
    advice: |_action, status, _code| match status {
        401 | 403 => "; are the OS_… variables of this process a login to the cluster's project?".to_owned(),
        _ => String::new(),
    },
};

/// An error as OpenStack's services write it: `{"error": {"code": 401, "title": "Unauthorized", …}}`, or `{"itemNotFound":
/// {"code": 404, …}}`. Explanations may repeat the request, so the explanations are dropped.
pub(super) fn read(body: &[u8]) -> Option<ErrorBody> {
    #[derive(Deserialize)]
    struct Told {
        #[serde(default)]
        title: Option<String>,
        #[serde(default)]
        code: Option<u16>,
    }
    let told: BTreeMap<String, Told> = serde_json::from_slice(body).ok()?;
    let (name, Told { title, code }) = told.into_iter().next()?;
    code?;
    let code = title.filter(|_| name == "error").unwrap_or(name);
    Some(ErrorBody { code, message: String::new() })
}

/// Classifies an error by its status alone, except that older services throttle with status 413.
pub(super) fn meaning(status: u16, code: &str) -> Meaning {
    match (status, code) {
        (413, "overLimit") => Meaning::Throttled,
        _ => Meaning::by_status(status, code),
    }
}

/// Gets tokens for one service.
pub struct Keystone {
    client: Client,
    settings: Settings,
    /// The type of the service in Keystone's catalog.
    service: &'static str,
    /// The endpoint of Keystone, as messages show it.
    shown: String,
    timeout: Duration,
    calls: CloudCalls,
    cache: TokenCache<Session>,
}

impl std::fmt::Debug for Keystone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keystone")
            .field("at", &self.shown)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

impl Keystone {
    /// Gets tokens for a service with this login. `service` is the type of the service in Keystone's catalog. Requests are counted in
    /// `calls`.
    pub fn new(settings: Settings, service: &'static str, calls: CloudCalls) -> Result<Keystone, ApiError> {
        let url = api::base_url(&settings.tokens_url, AUTH_URL, "https://keystone.example.com:5000/v3")?;
        settings.require_ca_bundle_for(url.as_str())?;
        Ok(Keystone {
            client: settings.client()?,
            shown: url.origin().ascii_serialization(),
            settings,
            service,
            timeout: TIMEOUT,
            calls,
            cache: TokenCache::default(),
        })
    }

    /// Sets the timeout of each request.
    #[must_use]
    pub fn within(self, timeout: Duration) -> Keystone {
        Keystone { timeout, ..self }
    }

    /// The endpoint of the service, and a token for it that does not expire soon.
    pub async fn session(&self) -> Result<Session, ApiError> {
        let ask = async {
            let asked = self.ask().await;
            self.calls.count("keystone", ACTION, api::outcome(&asked));
            asked
        };
        self.cache.get(ask).await
    }

    /// Drops the cached token if it is the rejected token.
    pub async fn forget(&self, refused: &HeaderValue) {
        self.cache.forget(|session| session.token == *refused).await;
    }

    async fn ask(&self) -> Result<Issued<Session>, ApiError> {
        let asked = Instant::now();
        let question = Question { api: &API, action: ACTION, endpoint: &self.shown, longest: LONGEST_ANSWER };
        let request = self.client.post(&self.settings.tokens_url).json(&self.settings.request);
        let request = request.timeout(self.timeout).build();
        let request = request.map_err(|error| question.unreachable(innermost_cause(error)))?;
        let (headers, body) = api::ask_whole(&self.client, request, question).await?;
        let garbage = |problem: &str| question.garbage(201, problem);
        let mut token = headers.get(SUBJECT_TOKEN).cloned().ok_or_else(|| garbage("it has no token"))?;
        token.set_sensitive(true);
        let Answer { token: told } =
            serde_json::from_slice(&body).map_err(|_| garbage("its body does not describe a token"))?;
        let time = |text: &str| {
            OffsetDateTime::parse(text, &Rfc3339).map_err(|_| garbage("its times are malformed"))
        };
        // Both times are from Keystone's clock, because this machine's clock may be wrong.
        let life = time(&told.expires_at)? - time(&told.issued_at)?;
        let life = Duration::try_from(life).unwrap_or_default();
        let endpoint = self.endpoint(&told.catalog)?;
        Ok(Issued::new(Session { endpoint, token }, asked, life))
    }

    /// The service's endpoint in the catalog, for the region and the interface in the settings.
    fn endpoint(&self, catalog: &[Service]) -> Result<String, ApiError> {
        let Settings { region, interface, .. } = &self.settings;
        let service = self.service;
        let all: Vec<&Endpoint> = catalog
            .iter()
            .filter(|entry| entry.kind == service)
            .flat_map(|entry| &entry.endpoints)
            .filter(|endpoint| endpoint.interface == *interface)
            .collect();
        let regions = regions(&all);
        let unknown = |problem| ApiError::NoPlace { variable: REGION, problem, may_pass: false };
        let there = |endpoint: &&&Endpoint| match region {
            Some(region) => endpoint.region == *region || endpoint.region_id == *region,
            None => true,
        };
        let found = all.iter().find(there);
        match (found, region) {
            (Some(_), None) if regions.len() > 1 => {
                Err(unknown(format!("is not set, and OpenStack has several regions: {}", in_words(&regions))))
            }
            (Some(found), _) => Ok(found.url.clone()),
            (None, _) if all.is_empty() => Err(ApiError::NoPlace {
                variable: INTERFACE,
                problem: format!(
                    "does not fit this cloud: Keystone's catalog has no {interface} endpoint of the service \
                     {service}; correct {INTERFACE} (default: public), or check which cloud {AUTH_URL} names"
                ),
                may_pass: false,
            }),
            (None, region) => {
                let region = region.as_deref().unwrap_or_default();
                let known = in_words(&regions);
                Err(unknown(format!("is {region:?}, but the service {service} is only in {known}")))
            }
        }
    }
}

fn regions<'a>(endpoints: &[&'a Endpoint]) -> Vec<&'a str> {
    let mut regions: Vec<&str> = endpoints.iter().map(|endpoint| endpoint.region.as_str()).collect();
    regions.sort_unstable();
    regions.dedup();
    regions
}

fn in_words(regions: &[&str]) -> String {
    let shown = |region: &&str| one_line(region, LONGEST_REGION);
    regions.iter().take(MOST_REGIONS).map(shown).collect::<Vec<_>>().join(", ")
}

#[async_trait::async_trait]
impl Login for Keystone {
    fn client(&self) -> Result<Client, HttpError> {
        self.settings.client()
    }

    async fn session(&self) -> Result<Session, ApiError> {
        self.session().await
    }

    async fn forget(&self, refused: &HeaderValue) {
        self.forget(refused).await;
    }
}

#[derive(Deserialize)]
struct Answer {
    token: Told,
}

#[derive(Deserialize)]
struct Told {
    issued_at: String,
    expires_at: String,
    /// The endpoints of services. Empty for a user without a project.
    #[serde(default)]
    catalog: Vec<Service>,
}

#[derive(Deserialize)]
struct Service {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(default)]
    interface: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    region: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    region_id: String,
    url: String,
}
