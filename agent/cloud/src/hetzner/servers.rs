//! The servers of one cluster, as Hetzner Cloud's API lists them, for the bootstrap server.
//!
//! Hetzner answers 3600 requests an hour, to all of a project together, and the number that a machine says it has is no
//! secret. So nobody makes Hetzner be asked for one server: one list of the cluster's servers answers all questions of
//! some seconds, and lies cost no request more than the truth does.
//!
//! Source: Hetzner Cloud API, "Servers", "Label Selector", "Pagination", "Rate Limiting".

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kops_agent_plan::identity::hetzner::{CLUSTER_LABEL, HetznerServer};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Client, Url};
use serde::Deserialize;
use thiserror::Error;
use tokio::time::{Instant, timeout};

use crate::calls::{CloudCalls, Outcome};
use crate::coalesced::Coalesced;
use kops_agent_net::http::{self, HttpError, innermost_cause};
use kops_agent_net::tls::{self, NoCaBundle};

const ENDPOINT: &str = "https://api.hetzner.cloud/v1";
const ENDPOINT_VARIABLE: &str = "HCLOUD_ENDPOINT";
const TOKEN_VARIABLE: &str = "HCLOUD_TOKEN";
const ACTION: &str = "servers.list";
/// The most servers of a page that Hetzner gives.
const PAGE: &str = "50";
/// More pages than a project could have.
const MOST_PAGES: u32 = 200;
/// The longest page that is read, in bytes: a server has some 5 KiB.
const LONGEST_ANSWER: usize = 4 << 20;
/// How old the list may be for each page that it has: at most a fifth of what Hetzner answers in an hour.
const PAGE_FOR: Duration = Duration::from_secs(5);
const PAGE_WITHIN: Duration = Duration::from_secs(5);

/// Why Hetzner did not say which servers there are.
#[derive(Clone, Debug, Error)]
pub enum HetznerError {
    /// There is nobody to ask as.
    #[error(
        "{TOKEN_VARIABLE} is not set, or is no token: give this process a token of the project that may read it, as \
         kops-controller has one"
    )]
    NoToken,
    /// The environment names an endpoint that is none.
    #[error("{ENDPOINT_VARIABLE} is {0:?}, which is no URL of an API, as {ENDPOINT} would be")]
    BadEndpoint(String),
    /// It says no.
    #[error("Hetzner Cloud answers {ACTION} with {status} {code}{advice}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Hetzner's name of the error; may be empty.
        code: String,
        /// What to do; begins with punctuation.
        advice: &'static str,
    },
    /// Something else answers, or what cannot be read.
    #[error("{endpoint} does not answer {ACTION} as Hetzner Cloud does: {problem}")]
    Unusable {
        /// Where.
        endpoint: String,
        /// What is wrong.
        problem: String,
    },
    /// No answer.
    #[error("cannot ask {endpoint} for {ACTION}: {cause}; check the network, DNS and proxy")]
    Unreachable {
        /// Where.
        endpoint: String,
        /// What failed.
        cause: String,
    },
    /// Hetzner needs TLS, which needs somebody to trust.
    #[error("{0}")]
    NoCaBundle(Arc<NoCaBundle>),
    /// Nothing can be asked.
    #[error("{0}")]
    Http(Arc<HttpError>),
}

impl HetznerError {
    /// Whether somebody has to change the configuration before trying again can help.
    pub fn is_configuration(&self) -> bool {
        matches!(self, HetznerError::NoToken | HetznerError::BadEndpoint(_))
    }
}

/// The servers of one cluster.
#[derive(Debug)]
pub struct HetznerServers {
    client: Client,
    endpoint: Url,
    token: HeaderValue,
    cluster: String,
    calls: CloudCalls,
    listed: Coalesced<Listing, HetznerError>,
    last: Mutex<Last>,
}

type Listing = BTreeMap<u64, Arc<HetznerServer>>;

/// How Hetzner was asked for the last time.
#[derive(Debug, Default)]
struct Last {
    pages: u32,
    failed: Option<(Instant, HetznerError)>,
    /// The addresses of all servers when they were last listed.
    addresses: BTreeSet<IpAddr>,
}

#[derive(Deserialize)]
struct Page {
    servers: Vec<Server>,
    meta: Meta,
}

#[derive(Deserialize)]
struct Meta {
    pagination: Pagination,
}

#[derive(Deserialize)]
struct Pagination {
    next_page: Option<u32>,
}

#[derive(Deserialize)]
struct Server {
    id: u64,
    name: String,
    status: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    public_net: Option<PublicNet>,
    #[serde(default)]
    private_net: Vec<PrivateNet>,
}

#[derive(Deserialize)]
struct PublicNet {
    ipv4: Option<PublicIpv4>,
}

#[derive(Deserialize)]
struct PublicIpv4 {
    ip: Ipv4Addr,
}

#[derive(Deserialize)]
struct PrivateNet {
    ip: IpAddr,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    error: RefusalError,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RefusalError {
    code: String,
}

impl HetznerServers {
    /// Those of a cluster, asked for where `HCLOUD_ENDPOINT` says, else of Hetzner, with the token in `HCLOUD_TOKEN`;
    /// counted there.
    ///
    /// # Errors
    /// If there is no token, this host trusts nobody, or the endpoint or a proxy is no URL.
    pub fn of_environment(cluster: &str, calls: CloudCalls) -> Result<HetznerServers, HetznerError> {
        let set = |name| std::env::var(name).ok().filter(|value: &String| !value.trim().is_empty());
        let token = set(TOKEN_VARIABLE).ok_or(HetznerError::NoToken)?;
        let endpoint = set(ENDPOINT_VARIABLE).unwrap_or_else(|| ENDPOINT.to_owned());
        tls::require_ca_bundle_for([endpoint.as_str()])
            .map_err(|error| HetznerError::NoCaBundle(Arc::new(error)))?;
        HetznerServers::at(&endpoint, &token, cluster, calls)
    }

    /// The same at this endpoint, with this token.
    ///
    /// # Errors
    /// As above.
    pub fn at(
        endpoint: &str,
        token: &str,
        cluster: &str,
        calls: CloudCalls,
    ) -> Result<HetznerServers, HetznerError> {
        let bad = || HetznerError::BadEndpoint(endpoint.to_owned());
        let mut url =
            Url::parse(&format!("{}/servers", endpoint.trim_end_matches('/'))).map_err(|_| bad())?;
        if !matches!(url.scheme(), "http" | "https") || url.query().is_some() || !url.has_host() {
            return Err(bad());
        }
        url.query_pairs_mut()
            .append_pair("label_selector", &format!("{CLUSTER_LABEL}=={cluster}"))
            .append_pair("per_page", PAGE);
        let mut token =
            HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| HetznerError::NoToken)?;
        token.set_sensitive(true);
        let failed = |error: HttpError| HetznerError::Http(Arc::new(error));
        let config = tls::client_config().map_err(|error| failed(error.into()))?;
        Ok(HetznerServers {
            // It follows nobody elsewhere: the token is for Hetzner.
            client: http::client_with(config).map_err(failed)?,
            endpoint: url,
            token,
            cluster: cluster.to_owned(),
            calls,
            listed: Coalesced::default(),
            last: Mutex::default(),
        })
    }

    /// The cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// What there is of the server with a number; `None` if the cluster has none.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn get(self: &Arc<Self>, id: u64) -> Result<Option<Arc<HetznerServer>>, Arc<HetznerError>> {
        Ok(self.listing().await?.get(&id).cloned())
    }

    /// What there is of the server with a number, and of the one with a name, at the same moment.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn get_with_namesake(
        self: &Arc<Self>,
        id: u64,
        name: &str,
    ) -> Result<(Option<Arc<HetznerServer>>, Option<Arc<HetznerServer>>), Arc<HetznerError>> {
        let listing = self.listing().await?;
        let namesake = listing.values().find(|server| server.name == name).cloned();
        Ok((listing.get(&id).cloned(), namesake))
    }

    /// Whether a server had this address when they were last listed. No request is made.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.last().addresses.contains(&address)
    }

    async fn listing(self: &Arc<Self>) -> Result<Arc<Listing>, Arc<HetznerError>> {
        // A list of many pages costs as many requests.
        let good_for = PAGE_FOR.saturating_mul(self.last().pages.max(1));
        let servers = self.clone();
        self.listed.get(good_for, async move { servers.list().await }).await
    }

    async fn list(&self) -> Result<Listing, HetznerError> {
        // Who does not answer is not asked again at once, whoever wants it.
        if let Some((at, error)) = &self.last().failed
            && at.elapsed() < PAGE_FOR
        {
            return Err(error.clone());
        }
        let listed = self.pages().await;
        let mut last = self.last();
        last.failed = listed.as_ref().err().map(|error| (Instant::now(), error.clone()));
        if let Ok(listing) = &listed {
            last.addresses = listing.values().flat_map(|server| addresses(server)).collect();
        }
        drop(last);
        listed
    }

    async fn pages(&self) -> Result<Listing, HetznerError> {
        let mut servers = BTreeMap::new();
        let mut next = Some(1);
        while let Some(page) = next {
            if page > MOST_PAGES {
                return Err(self.unusable("its pages have no end"));
            }
            let answer = timeout(PAGE_WITHIN, self.page(page)).await.unwrap_or_else(|_| {
                Err(self.unreachable(format!("no answer in {} seconds", PAGE_WITHIN.as_secs())))
            });
            let outcome = match &answer {
                Ok(_) => Outcome::Success,
                Err(HetznerError::Refused { status: 429, .. }) => Outcome::Throttled,
                Err(_) => Outcome::Error,
            };
            self.calls.count("hcloud", ACTION, outcome);
            let answer = answer?;
            self.last().pages = page;
            next = answer.meta.pagination.next_page.filter(|next| *next > page);
            servers.extend(answer.servers.into_iter().map(|server| (server.id, Arc::new(server.into()))));
        }
        Ok(servers)
    }

    async fn page(&self, page: u32) -> Result<Page, HetznerError> {
        let mut url = self.endpoint.clone();
        url.query_pairs_mut().append_pair("page", &page.to_string());
        let lost = |error| self.unreachable(innermost_cause(error));
        let request = self.client.get(url).header(AUTHORIZATION, self.token.clone());
        let answer = request.send().await.map_err(lost)?;
        let status = answer.status().as_u16();
        let body = http::body(answer, LONGEST_ANSWER).await.map_err(lost)?;
        let body = body.ok_or_else(|| self.unusable("it is too long"))?;
        if status == 200 {
            return serde_json::from_slice(&body).map_err(|error| self.unusable(&error.to_string()));
        }
        let refusal: Refusal = serde_json::from_slice(&body).unwrap_or_default();
        let advice = match status {
            401 | 403 => "; is HCLOUD_TOKEN a token of this cluster's project?",
            429 => "; this project asks it too much at the moment",
            _ => "",
        };
        Err(HetznerError::Refused { status, code: refusal.error.code, advice })
    }

    fn unusable(&self, problem: &str) -> HetznerError {
        HetznerError::Unusable { endpoint: self.shown(), problem: problem.to_owned() }
    }

    fn unreachable(&self, cause: String) -> HetznerError {
        HetznerError::Unreachable { endpoint: self.shown(), cause }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self) -> String {
        self.endpoint.origin().ascii_serialization()
    }
}

fn addresses(server: &HetznerServer) -> impl Iterator<Item = IpAddr> {
    server.public_ipv4.map(IpAddr::V4).into_iter().chain(server.private_ips.iter().copied())
}

impl From<Server> for HetznerServer {
    fn from(server: Server) -> HetznerServer {
        HetznerServer {
            id: server.id,
            name: server.name,
            status: server.status,
            labels: server.labels,
            public_ipv4: server.public_net.and_then(|net| net.ipv4).map(|ipv4| ipv4.ip),
            private_ips: server.private_net.into_iter().map(|net| net.ip).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
