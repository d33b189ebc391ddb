//! The machines of one cluster, as its cloud's API lists them page by page, for clouds that are asked with a token of the
//! project.
//!
//! Such a cloud answers some thousand requests an hour, to all of a project together, and the number that a machine says it has is
//! no secret. So no request is made for one machine: one list of the cluster's machines answers all questions of some seconds, and
//! a made-up number costs no request more than a true one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Client, Url};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::time::{Instant, timeout};

use crate::api::{self, NoAnswer};
use crate::calls::{CloudCalls, Outcome};
use crate::singleflight::Singleflight;
use crate::verify::OwnAddresses;
use kops_agent_net::http::{self, HttpError, innermost_cause};
use kops_agent_net::tls::{self, NoCaBundle};

/// More pages than a project could have.
const MOST_PAGES: u32 = 200;
/// The longest page that is read, in bytes: a machine has some 5 KiB.
const LONGEST_PAGE: usize = 4 << 20;
/// How old the list may be for each page that it has: at most a fifth of what a cloud answers in an hour.
const PAGE_TTL: Duration = Duration::from_secs(5);
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// How the API of a cloud is asked for machines.
#[derive(Debug)]
pub struct ListApi {
    /// The cloud, as people call it.
    pub cloud: &'static str,
    /// Its name in metrics.
    pub service: &'static str,
    /// What is asked, as the API's reference names it.
    pub action: &'static str,
    /// Where the API is.
    pub endpoint: &'static str,
    /// The variable that moves it.
    pub endpoint_variable: &'static str,
    /// The variable with the token.
    pub token_variable: &'static str,
    /// Where the list is, below the endpoint.
    pub path: &'static str,
    /// The parameter that selects machines.
    pub selector: &'static str,
    /// The most machines of a page.
    pub page: &'static str,
}

/// A machine that a cloud's API lists.
pub trait Listed: fmt::Debug + Send + Sync + Sized + 'static {
    /// How it is asked for.
    const API: ListApi;
    /// A page of the list.
    type Page: DeserializeOwned + Send;

    /// What selects the machines of a cluster.
    fn selector(cluster: &str) -> String;
    /// The machines of the page of this number, and the number of the next page.
    fn of_page(page: Self::Page, number: u32) -> (Vec<Self>, Option<u32>);
    /// The name of the error in an answer; empty where it has none.
    fn error_code(body: &[u8]) -> String;
    /// Its number.
    fn id(&self) -> u64;
    /// Whether the Node of this name is its own.
    fn is_called(&self, node: &str) -> bool;
    /// All its addresses.
    fn addresses(&self) -> Vec<IpAddr>;
}

/// Why a cloud did not list machines.
#[derive(Clone, Debug, Error)]
pub enum ListError {
    /// There is no token to ask with.
    #[error(
        "{variable} is not set, or is no token: give this process a token of the project that may read it, as \
         kops-controller has one"
    )]
    NoToken {
        /// The variable that should have it.
        variable: &'static str,
    },
    /// The environment names an endpoint that is none.
    #[error("{variable} is {endpoint:?}, which is no URL of an API, as {usual} would be")]
    BadEndpoint {
        /// The variable.
        variable: &'static str,
        /// Its value.
        endpoint: String,
        /// A good one.
        usual: &'static str,
    },
    /// The cloud says no.
    #[error("{cloud} answers {action} with {status} {code}{advice}")]
    Refused {
        /// The cloud.
        cloud: &'static str,
        /// What was asked.
        action: &'static str,
        /// The HTTP status.
        status: u16,
        /// The cloud's name of the error; may be empty.
        code: String,
        /// What to do; begins with punctuation.
        advice: String,
    },
    /// Something else answers, or what cannot be read.
    #[error("{endpoint} does not answer {action} as {cloud} does: {problem}")]
    Unusable {
        /// The cloud.
        cloud: &'static str,
        /// What was asked.
        action: &'static str,
        /// Where.
        endpoint: String,
        /// What is wrong.
        problem: String,
    },
    /// No answer.
    #[error("cannot ask {endpoint} for {action}: {cause}; check the network, DNS and proxy")]
    Unreachable {
        /// What was asked.
        action: &'static str,
        /// Where.
        endpoint: String,
        /// What failed.
        cause: String,
    },
    /// The API needs TLS, and this host has no certificate authorities.
    #[error("{0}")]
    NoCaBundle(Arc<NoCaBundle>),
    /// There can be no HTTP client.
    #[error("{0}")]
    Http(Arc<HttpError>),
}

impl ListError {
    /// Whether the configuration has to change before trying again can help.
    pub fn is_configuration(&self) -> bool {
        matches!(self, ListError::NoToken { .. } | ListError::BadEndpoint { .. })
    }
}

/// The machines of one cluster.
#[derive(Debug)]
pub struct Inventory<M> {
    client: Client,
    endpoint: Url,
    token: HeaderValue,
    cluster: String,
    calls: CloudCalls,
    listed: Singleflight<Listing<M>, ListError>,
    last: Mutex<Last>,
}

type Listing<M> = BTreeMap<u64, Arc<M>>;

/// The last list.
#[derive(Debug, Default)]
struct Last {
    pages: u32,
    /// The pages of the last list that came to its end.
    whole: u32,
    failed: Option<(Instant, ListError)>,
    /// The addresses of all machines when they were last listed.
    addresses: BTreeSet<IpAddr>,
}

impl<M: Listed> Inventory<M> {
    /// The machines of a cluster, asked for where the environment says, else at the cloud's own endpoint, with the token in the
    /// environment; counted in `calls`.
    ///
    /// # Errors
    /// If there is no token, this host has no certificate authorities, or the endpoint or a proxy is no URL.
    pub fn of_environment(cluster: &str, calls: CloudCalls) -> Result<Inventory<M>, ListError> {
        let set = |name| std::env::var(name).ok().filter(|value: &String| !value.trim().is_empty());
        let variable = M::API.token_variable;
        let token = set(variable).ok_or(ListError::NoToken { variable })?;
        let endpoint = set(M::API.endpoint_variable).unwrap_or_else(|| M::API.endpoint.to_owned());
        tls::require_ca_bundle_for([endpoint.as_str()])
            .map_err(|error| ListError::NoCaBundle(Arc::new(error)))?;
        Inventory::at(&endpoint, &token, cluster, calls)
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
    ) -> Result<Inventory<M>, ListError> {
        let bad = || ListError::BadEndpoint {
            variable: M::API.endpoint_variable,
            endpoint: endpoint.to_owned(),
            usual: M::API.endpoint,
        };
        let mut url =
            Url::parse(&format!("{}{}", endpoint.trim_end_matches('/'), M::API.path)).map_err(|_| bad())?;
        if !matches!(url.scheme(), "http" | "https") || url.query().is_some() || !url.has_host() {
            return Err(bad());
        }
        url.query_pairs_mut()
            .append_pair(M::API.selector, &M::selector(cluster))
            .append_pair("per_page", M::API.page);
        let mut token = HeaderValue::try_from(format!("Bearer {}", token.trim()))
            .map_err(|_| ListError::NoToken { variable: M::API.token_variable })?;
        token.set_sensitive(true);
        let failed = |error: HttpError| ListError::Http(Arc::new(error));
        let config = tls::client_config().map_err(|error| failed(error.into()))?;
        Ok(Inventory {
            // It follows no redirect: the token is for this cloud.
            client: http::client_with(config).map_err(failed)?,
            endpoint: url,
            token,
            cluster: cluster.to_owned(),
            calls,
            listed: Singleflight::default(),
            last: Mutex::default(),
        })
    }

    /// The cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The machine with a number; `None` if the cluster has none.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn get(self: &Arc<Self>, id: u64) -> Result<Option<Arc<M>>, Arc<ListError>> {
        Ok(self.listing().await?.get(&id).cloned())
    }

    /// The machine with a number, and the one whose Node has a name, at the same moment.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn get_with_namesake(
        self: &Arc<Self>,
        id: u64,
        node: &str,
    ) -> Result<(Option<Arc<M>>, Option<Arc<M>>), Arc<ListError>> {
        let listing = self.listing().await?;
        let namesake = listing.values().find(|machine| machine.is_called(node)).cloned();
        Ok((listing.get(&id).cloned(), namesake))
    }

    async fn listing(self: &Arc<Self>) -> Result<Arc<Listing<M>>, Arc<ListError>> {
        // A list of many pages costs as many requests.
        let ttl = PAGE_TTL.saturating_mul(self.last().pages.max(1));
        let machines = self.clone();
        self.listed.get(ttl, async move { machines.list().await }).await
    }

    async fn list(&self) -> Result<Listing<M>, ListError> {
        // An API that has just failed is not asked again at once: the next try costs as many requests as a whole list, and a
        // list that is throttled half way would spend all that is allowed, and never come to its end.
        let whole = self.last().whole;
        if let Some((at, error)) = &self.last().failed
            && at.elapsed() < PAGE_TTL.saturating_mul(whole.max(1))
        {
            return Err(error.clone());
        }
        let listed = self.pages().await;
        let mut last = self.last();
        last.failed = listed.as_ref().err().map(|error| (Instant::now(), error.clone()));
        if let Ok(listing) = &listed {
            last.whole = last.pages;
            last.addresses = listing.values().flat_map(|machine| machine.addresses()).collect();
        }
        drop(last);
        listed
    }

    async fn pages(&self) -> Result<Listing<M>, ListError> {
        let mut machines = BTreeMap::new();
        let mut next = Some(1);
        while let Some(number) = next {
            if number > MOST_PAGES {
                return Err(self.unusable("its pages have no end"));
            }
            let answer = timeout(PAGE_TIMEOUT, self.page(number)).await.unwrap_or_else(|_| {
                Err(self.unreachable(format!("no answer in {} seconds", PAGE_TIMEOUT.as_secs())))
            });
            let outcome = match &answer {
                Ok(_) => Outcome::Success,
                Err(ListError::Refused { status: 429, .. }) => Outcome::Throttled,
                Err(_) => Outcome::Error,
            };
            self.calls.count(M::API.service, M::API.action, outcome);
            let (of_page, following) = M::of_page(answer?, number);
            self.last().pages = number;
            next = following.filter(|next| *next > number);
            machines.extend(of_page.into_iter().map(|machine| (machine.id(), Arc::new(machine))));
        }
        Ok(machines)
    }

    async fn page(&self, number: u32) -> Result<M::Page, ListError> {
        let mut url = self.endpoint.clone();
        url.query_pairs_mut().append_pair("page", &number.to_string());
        let request = self.client.get(url).header(AUTHORIZATION, self.token.clone()).build();
        let request = request.map_err(|error| self.unreachable(innermost_cause(error)))?;
        let asked = api::ask(&self.client, request, LONGEST_PAGE).await;
        let answer = asked.map_err(|none| match none {
            NoAnswer::Unreachable(cause) => self.unreachable(cause),
            NoAnswer::TooLong { .. } => self.unusable("it is too long"),
        })?;
        if answer.status == 200 {
            return serde_json::from_slice(&answer.body).map_err(|error| self.unusable(&error.to_string()));
        }
        let advice = match answer.status {
            401 | 403 => format!("; is {} a token of this cluster's project?", M::API.token_variable),
            429 => "; this project asks it too much at the moment".to_owned(),
            _ => String::new(),
        };
        let ListApi { cloud, action, .. } = M::API;
        Err(ListError::Refused {
            cloud,
            action,
            status: answer.status,
            code: M::error_code(&answer.body),
            advice,
        })
    }

    fn unusable(&self, problem: &str) -> ListError {
        let ListApi { cloud, action, .. } = M::API;
        ListError::Unusable { cloud, action, endpoint: self.shown(), problem: problem.to_owned() }
    }

    fn unreachable(&self, cause: String) -> ListError {
        ListError::Unreachable { action: M::API.action, endpoint: self.shown(), cause }
    }

    fn shown(&self) -> String {
        self.endpoint.origin().ascii_serialization()
    }
}

impl<M> Inventory<M> {
    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Send + Sync> OwnAddresses for Inventory<M> {
    fn has_address(&self, address: IpAddr) -> bool {
        self.last().addresses.contains(&address)
    }
}
