//! The machines of one cluster, as its cloud's API lists them page by page, for clouds that are asked with a token of the
//! project, or with a login that gives such tokens.
//!
//! Such a cloud answers some thousand requests an hour, to all of a project together, and the id that a machine says it has is
//! no secret. So no request is made for one machine: one list of the cluster's machines answers all questions of some seconds, and
//! a made-up id costs no request more than a true one.
//!
//! Such clouds differ in what they list and how they name it, which is [`Listed`]. What a machine proves itself with, how it is
//! verified, and how Nodes are identified is the same for all of them.

mod authenticate;
mod cloud;
mod door;
mod identify;
mod selection;
mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_plan::bootstrap::id_token::IdToken;
use kops_agent_plan::identity::Refusal;
use kops_agent_plan::identity::machine::{CloudMachine, ProviderIds};
use kops_agent_plan::machine_id::MachineId;
use kops_agent_spec::CloudProvider;
use kops_agent_spec::facts::CloudFacts;
use reqwest::Client;
use reqwest::header::HeaderValue;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use crate::api::{self, Api, ApiError};
use crate::calls::CloudCalls;
use crate::metadata::MetadataError;
use crate::singleflight::Singleflight;
use crate::verify::{MachinePrefix, OwnAddresses};
use kops_agent_net::http::{self, HttpError, innermost_cause};
use kops_agent_net::tls;

pub(crate) use authenticate::IdAuthenticator;
pub(crate) use cloud::ListedCloud;
use door::{Access, Door};
pub use door::{Login, Session};
pub use identify::ListedControlPlane;
pub(crate) use selection::variable;
pub use selection::{PageAt, Scope, Selection};
pub use verify::ListedVerifier;

/// More pages than a project could have.
const MOST_PAGES: u32 = 200;
/// The longest page that is read, in bytes: a machine has some 5 KiB.
const LONGEST_PAGE: usize = 4 << 20;
/// How old the list may be for each page that it has: at most a fifth of what a cloud answers in an hour. The newest machines are
/// asked for as often at most, where the list has more than one page.
const PAGE_TTL: Duration = Duration::from_secs(5);
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// How the API of a cloud is asked for machines.
#[derive(Debug)]
pub struct ListApi {
    /// The API, and how it says no.
    pub(crate) api: &'static Api,
    /// Its name in metrics.
    pub(crate) service: &'static str,
    /// What is asked, as the API's reference names it.
    pub(crate) action: &'static str,
    /// Where the API is.
    pub(crate) endpoint: &'static str,
    /// The variable that moves it.
    pub(crate) endpoint_variable: &'static str,
    /// The variable with the token.
    pub(crate) token_variable: &'static str,
    /// The header that the token is sent in, and what stands before it there.
    pub(crate) token_header: (&'static str, &'static str),
    /// The parameter that says how many machines a page has at most, and how many those are.
    pub(crate) page: (&'static str, &'static str),
    /// The parameters that have the newest machines on the first page; none where the API knows no such order.
    pub(crate) newest_first: &'static [(&'static str, &'static str)],
}

/// How a cloud's machines become nodes.
#[derive(Debug)]
pub struct Bootstrap {
    /// kOps' key for the cloud in the server's configuration (upstream: `cmd/kops-controller/pkg/config/options.go`).
    pub(crate) provider: &'static str,
    /// Their tokens.
    pub(crate) token: IdToken,
    /// Where their id is among facts.
    pub(crate) fact: &'static str,
    /// The reason of a refusal while the API does not answer.
    pub(crate) unavailable: &'static str,
    /// What is wrong with a machine that has no address to be called back at: the reason of its refusal, and the end of a sentence.
    pub(crate) no_address: (&'static str, &'static str),
    /// How many leading bits of an IPv6 address are one machine's own.
    pub(crate) machine_prefix: MachinePrefix,
}

/// A machine that a cloud's API lists.
pub trait Listed: CloudMachine + fmt::Debug + Send + Sync + Sized + 'static {
    /// How it is asked for.
    const API: ListApi;
    /// How it becomes a node.
    const BOOTSTRAP: Bootstrap;
    /// How its Node names it.
    const PROVIDER_IDS: ProviderIds;
    /// Its cloud.
    const PROVIDER: CloudProvider;
    /// A page of the list.
    type Page: DeserializeOwned + Send;

    /// Asks the metadata service which machine this is, and writes the answers into the cloud's part of the facts.
    fn observe(
        facts: &mut CloudFacts,
        retries: kops_agent_net::retry::Retries,
    ) -> BoxFuture<'_, Result<(), MetadataError>>;
    /// The id of this machine, as its metadata service writes it; `None` where it was not asked.
    fn id_of(facts: &CloudFacts) -> Option<&str>;

    /// Where in the cloud a cluster is, as far as its API has to be told: by default nowhere else than its token says.
    ///
    /// # Errors
    /// If neither the environment nor the metadata service says so.
    fn scope(cluster: &str) -> BoxFuture<'_, Result<Scope, ApiError>> {
        async move { Ok(Scope::from(cluster)) }.boxed()
    }
    /// What selects the machines of a cluster.
    fn selection(scope: &Scope) -> Selection;
    /// The machines of a page, and the number of the next page.
    fn of_page(page: Self::Page, at: PageAt) -> (Vec<Self>, Option<u32>);
    /// All its addresses.
    fn addresses(&self) -> Vec<IpAddr>;

    /// What proves that it is the machine itself which says its id.
    const PROVEN_BY: ProvenBy = ProvenBy::CallBack;
    /// How a page is asked for.
    const PAGED_BY: PagedBy = PagedBy::Number;
    /// What tells where the API is and gives tokens for it, where the environment has neither, by the environment: by default there
    /// is no such thing. Questions to it are counted in `calls`.
    ///
    /// # Errors
    /// If the environment has nothing to log in with, or a client cannot be set up.
    fn login(calls: &CloudCalls) -> Result<Option<Arc<dyn Login>>, ApiError> {
        let _ = calls;
        Ok(None)
    }
    /// Whether it is one of a cluster's, where the API cannot be asked for those only.
    fn is_listed_for(&self, cluster: &str) -> bool {
        let _ = cluster;
        true
    }
}

/// What proves that it is a machine itself which says its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvenBy {
    /// Its answer at its address.
    CallBack,
    /// That it asks from one of its addresses.
    Address,
}

/// How a page of a list is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagedBy {
    /// By its number.
    Number,
    /// By the id of the last machine of the page before.
    Marker,
}

/// What to do about an error of this status; begins with punctuation, or is empty.
pub(crate) fn advice(token_variable: &str, status: u16) -> String {
    match status {
        401 | 403 => format!("; is {token_variable} a token of this cluster's project?"),
        _ => String::new(),
    }
}

/// The machines of one cluster.
#[derive(Debug)]
pub struct Inventory<M> {
    client: Client,
    door: Door,
    scope: Scope,
    calls: CloudCalls,
    listed: Singleflight<Listing<M>, ApiError>,
    /// The same, with machines made since.
    newest: Singleflight<Listing<M>, ApiError>,
    last: Mutex<Last>,
}

type Listing<M> = BTreeMap<MachineId, Arc<M>>;

/// How much of a list is asked for.
enum Span<M> {
    /// All of it.
    Whole,
    /// What is newer than these.
    Since(Arc<Listing<M>>),
}

impl<M: Listed> Span<M> {
    /// Whether it begins on a page, those after which are older.
    fn begins_on(&self, page: &[M]) -> bool {
        match self {
            Span::Whole => false,
            Span::Since(known) => page.iter().any(|machine| known.contains_key(&machine.id())),
        }
    }
}

/// The last list.
#[derive(Debug, Default)]
struct Last {
    /// The pages of the whole list.
    whole: u32,
    /// The pages that had machines which were not in it.
    newest: u32,
    /// Until when the API is not asked again, and why.
    failed: Option<(Instant, ApiError)>,
    /// The addresses of all machines when they were last listed.
    addresses: BTreeSet<IpAddr>,
}

impl<M: Listed> Inventory<M> {
    /// The machines of a cluster, asked for where the environment says, else at the cloud's own endpoint, with the token in the
    /// environment; counted in `calls`.
    ///
    /// # Errors
    /// If there is no token, this host has no certificate authorities, the endpoint or a proxy is no URL, or it is not known where
    /// in the cloud the cluster is.
    pub async fn of_environment(cluster: &str, calls: CloudCalls) -> Result<Inventory<M>, ApiError> {
        if let Some(login) = M::login(&calls)? {
            return Inventory::behind(login, M::scope(cluster).await?, calls);
        }
        let variable = M::API.token_variable;
        let token = selection::variable(variable).ok_or(ApiError::NoToken { variable })?;
        let endpoint =
            selection::variable(M::API.endpoint_variable).unwrap_or_else(|| M::API.endpoint.to_owned());
        tls::require_ca_bundle_for([endpoint.as_str()])?;
        Inventory::at(&endpoint, &token, M::scope(cluster).await?, calls)
    }

    /// The same at this endpoint, with this token.
    ///
    /// # Errors
    /// As above.
    pub fn at(
        endpoint: &str,
        token: &str,
        scope: impl Into<Scope>,
        calls: CloudCalls,
    ) -> Result<Inventory<M>, ApiError> {
        let scope = scope.into();
        let ListApi { token_variable: variable, token_header: (_, before), .. } = M::API;
        let mut token = HeaderValue::try_from(format!("{before}{}", token.trim()))
            .map_err(|_| ApiError::NoToken { variable })?;
        token.set_sensitive(true);
        let access = Access::of::<M>(&Session { endpoint: endpoint.to_owned(), token }, &scope)?;
        Inventory::of(Door::Open(Arc::new(access)), scope, calls)
    }

    /// The same where a login tells, with the tokens that it gives.
    ///
    /// # Errors
    /// If there can be no HTTP client.
    pub(crate) fn behind(
        login: Arc<dyn Login>,
        scope: impl Into<Scope>,
        calls: CloudCalls,
    ) -> Result<Inventory<M>, ApiError> {
        Inventory::of(Door::Login(login), scope.into(), calls)
    }

    fn of(door: Door, scope: Scope, calls: CloudCalls) -> Result<Inventory<M>, ApiError> {
        let config = tls::client_config().map_err(HttpError::from)?;
        // It follows no redirect: the token is for this cloud.
        let client = http::client_with(config)?;
        let (listed, newest) = (Singleflight::default(), Singleflight::default());
        Ok(Inventory { client, door, scope, calls, listed, newest, last: Mutex::default() })
    }

    /// The cluster.
    pub fn cluster(&self) -> &str {
        &self.scope.cluster
    }

    /// The machine with an id; `None` if the cluster has none.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn get(self: &Arc<Self>, id: MachineId) -> Result<Option<Arc<M>>, Arc<ApiError>> {
        Ok(self.listing_with(id).await?.get(&id).cloned())
    }

    /// The machine with an id, and the one whose Node has a name, at the same moment.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn get_with_namesake(
        self: &Arc<Self>,
        id: MachineId,
        node: &str,
    ) -> Result<(Option<Arc<M>>, Option<Arc<M>>), Arc<ApiError>> {
        let listing = self.listing_with(id).await?;
        // One of another cluster, in another network, may have the same.
        let is_of_another =
            |machine: &M| matches!(machine.identify(self.cluster()), Err(Refusal::OtherCluster { .. }));
        let has_the_name = |machine: &&Arc<M>| machine.node_name() == node && !is_of_another(machine);
        let claimed = listing.get(&id);
        // Of several with this name, the one that is claimed is it.
        let namesake = claimed.filter(has_the_name).or_else(|| listing.values().find(has_the_name));
        Ok((claimed.cloned(), namesake.cloned()))
    }

    /// The list of all machines; where it has none of this id, and so many pages that one made since may be missing for long, the
    /// same with those made since.
    async fn listing_with(self: &Arc<Self>, id: MachineId) -> Result<Arc<Listing<M>>, Arc<ApiError>> {
        let Last { whole, newest, .. } = *self.last();
        // A list of many pages costs as many requests.
        let ttl = |pages: u32| PAGE_TTL.saturating_mul(pages.max(1));
        let machines = self.clone();
        let listing = self.listed.get(ttl(whole), async move { machines.list(Span::Whole).await }).await?;
        if listing.contains_key(&id) || self.last().whole <= 1 || M::API.newest_first.is_empty() {
            return Ok(listing);
        }
        let (machines, known) = (self.clone(), listing.clone());
        let asked = self.newest.get(ttl(newest), async move { machines.list(Span::Since(known)).await }).await?;
        Ok(if asked.contains_key(&id) { asked } else { listing })
    }

    async fn list(&self, span: Span<M>) -> Result<Listing<M>, ApiError> {
        // An API that has just failed is not asked again at once: the next try costs as many requests as a whole list, and a
        // list that is throttled half way would spend all that is allowed, and never come to its end.
        if let Some((until, error)) = &self.last().failed
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        let listed = self.pages(&span).await;
        let mut last = self.last();
        let pause = PAGE_TTL.saturating_mul(last.whole.max(1));
        last.failed = listed.as_ref().err().map(|error| {
            let pause = error.retry_after().map_or(pause, |asked| asked.max(pause));
            (Instant::now() + pause, error.clone())
        });
        let (machines, pages) = listed?;
        let listing = match span {
            Span::Whole => {
                last.whole = pages;
                machines
            }
            Span::Since(known) => {
                last.newest = pages;
                Listing::clone(&known).into_iter().chain(machines).collect()
            }
        };
        last.addresses = listing.values().flat_map(|machine| machine.addresses()).collect();
        drop(last);
        Ok(listing)
    }

    /// The machines of a span, and on how many pages they are.
    async fn pages(&self, span: &Span<M>) -> Result<(Listing<M>, u32), ApiError> {
        let mut machines = BTreeMap::new();
        let mut pages = 0;
        let mut access = self.door.access::<M>(&self.scope).await?;
        let mut may_be_revoked = true;
        let (mut next, mut marker) = (Some(1), None);
        while let Some(number) = next {
            let question = access.question::<M>();
            if number > MOST_PAGES {
                return Err(question.garbage(200, "its pages have no end"));
            }
            let answer = timeout(PAGE_TIMEOUT, self.page(&access, number, marker)).await;
            let answer = answer.unwrap_or_else(|_| {
                let cause = format!("no answer in {} seconds", PAGE_TIMEOUT.as_secs());
                Err(question.unreachable(cause))
            });
            self.calls.count(M::API.service, M::API.action, api::outcome(&answer));
            // A token may be revoked before its end, once.
            let is_refused = answer.as_ref().is_err_and(|error| error.status() == Some(401));
            if is_refused && may_be_revoked && self.door.forget(&access).await {
                may_be_revoked = false;
                access = self.door.access::<M>(&self.scope).await?;
                continue;
            }
            let (page, total) = answer?;
            let (of_page, following) = M::of_page(page, PageAt { number, total });
            pages = number;
            next = following.filter(|next| *next > number && !span.begins_on(&of_page));
            let last = of_page.last().map(CloudMachine::id);
            if M::PAGED_BY == PagedBy::Marker && next.is_some() && (last.is_none() || last == marker) {
                return Err(question.garbage(200, "its pages have no end"));
            }
            marker = last;
            let own = of_page.into_iter().filter(|machine| machine.is_listed_for(self.cluster()));
            machines.extend(own.map(|machine| (machine.id(), Arc::new(machine))));
        }
        Ok((machines, pages))
    }

    /// A page, and how many machines all pages have, where the answer's headers say so. `marker` is the last machine of the page
    /// before.
    async fn page(
        &self,
        access: &Access,
        number: u32,
        marker: Option<MachineId>,
    ) -> Result<(M::Page, Option<u64>), ApiError> {
        let mut url = access.list.clone();
        let page = match M::PAGED_BY {
            PagedBy::Number => Some(("page", number.to_string())),
            PagedBy::Marker => marker.map(|marker| ("marker", marker.to_string())),
        };
        url.query_pairs_mut().extend_pairs(page);
        let question = access.question::<M>();
        let request = self.client.get(url).headers(access.headers.clone()).build();
        let request = request.map_err(|error| question.unreachable(innermost_cause(error)))?;
        let (headers, body) = api::ask_whole(&self.client, request, question).await?;
        let page = serde_json::from_slice(&body).map_err(|error| question.garbage(200, error))?;
        Ok((page, selection::total(&headers)))
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

#[cfg(test)]
mod tests;
