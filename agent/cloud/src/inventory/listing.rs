//! The known machines of a cluster: the whole list, whose maximum age depends on its length, and the machines that were created
//! after the list was requested.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_cluster::identity::Refusal;
use kops_agent_cluster::machine_id::MachineId;
use kops_agent_net::{http, tls};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout};

use super::access::{Access, AccessSource};
use super::questions::{Listing, Questions};
use super::{ListApi, Listed, Login, Scope, Session, selection};
use crate::api::ApiError;
use crate::calls::CloudCalls;
use crate::rate_limiter::TokenBucket;
use crate::singleflight::Singleflight;
use crate::verify::OwnAddresses;

/// The maximum age of a list is this value multiplied by the list's number of pages. This applies to the whole list, and to the list of the
/// newest machines. With this age, requests for the whole list use a fifth of the requests that a cloud permits in an hour.
pub(super) const PAGE_TTL: Duration = Duration::from_secs(5);
/// The time for which an expired list stays usable while the request for a new list fails or is slow. During this time, the expired list
/// answers only questions about machines that it contains.
pub(super) const STALE: Duration = Duration::from_secs(60);
/// How long a question waits for a new list if an older list contains the machine.
const SOON: Duration = Duration::from_secs(3);
/// The maximum age of a response that lets a machine get certificates.
const FRESH_FOR: Duration = Duration::from_secs(10);
/// The rate limit of requests for ids that no list contains: a burst, and then a number of requests per second. The limit exists because
/// unverified requests can name any id. Even if three replicas use this limit fully, a tenth of the cloud's hourly limit is left for other
/// programs.
const BESIDES_BURST: f64 = 30.0;
const BESIDES_PER_SECOND: f64 = 0.1;
/// The maximum number of missed ids (ids that no list contains) that wait for a request. There must be a maximum, because unverified
/// requests can name any number of ids.
const MOST_MISSED: usize = 1000;

/// The machines of one cluster.
#[derive(Debug)]
pub struct Inventory<M> {
    pub(super) questions: Questions,
    listed: Singleflight<Listing<M>, ApiError>,
    /// The list, together with the machines that were created after the list was requested.
    refreshed: Singleflight<Listing<M>, ApiError>,
    pub(super) fresh_for: Duration,
    pub(super) last: Mutex<Last<M>>,
}

/// The results of the last requests for machines, and the limits for the next requests.
#[derive(Debug)]
pub(super) struct Last<M> {
    /// The number of pages of the whole list.
    pages: u32,
    /// The number of pages that were read to find the newest machines.
    newest_pages: u32,
    /// The whole list, and when it was requested.
    pub(super) good: Option<(Instant, Arc<Listing<M>>)>,
    /// The end of the pause in which the API gets no request, and the error that caused the pause.
    pub(super) failed: Option<(Instant, ApiError)>,
    /// The ids that no list contains and that still need a request.
    missed: BTreeSet<MachineId>,
    /// The rate limit of all requests except the requests for the whole list.
    besides: TokenBucket,
    /// The answers to requests for single machines, and the time of each request.
    fresh: BTreeMap<MachineId, (Instant, Option<Arc<M>>)>,
    /// The addresses of all machines when they were last listed.
    addresses: BTreeSet<IpAddr>,
    /// The cluster's machines by the names of their Nodes, when they were last listed.
    names: BTreeMap<String, BTreeSet<MachineId>>,
}

impl<M> Default for Last<M> {
    fn default() -> Last<M> {
        Last {
            pages: 0,
            newest_pages: 0,
            good: None,
            failed: None,
            missed: BTreeSet::new(),
            besides: TokenBucket::new(BESIDES_BURST, BESIDES_PER_SECOND),
            fresh: BTreeMap::new(),
            addresses: BTreeSet::new(),
            names: BTreeMap::new(),
        }
    }
}

impl<M: Listed> Inventory<M> {
    /// Creates the inventory of a cluster's machines. The environment has the API token or the login, and may replace the endpoint of the
    /// cloud. Requests are counted in `calls`.
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

    /// Like `of_environment`, with this endpoint and this token.
    pub fn at(
        endpoint: &str,
        token: &str,
        scope: impl Into<Scope>,
        calls: CloudCalls,
    ) -> Result<Inventory<M>, ApiError> {
        let scope = scope.into();
        let ListApi { token_variable: variable, token_header: (_, before), .. } = M::API;
        let token =
            http::secret(&format!("{before}{}", token.trim())).map_err(|_| ApiError::NoToken { variable })?;
        let access = Access::new::<M>(&Session { endpoint: endpoint.to_owned(), token }, &scope)?;
        Inventory::new(AccessSource::Fixed(Arc::new(access)), scope, calls)
    }

    /// Like `of_environment`, with a login that finds the API and gets tokens.
    pub(crate) fn behind(
        login: Arc<dyn Login>,
        scope: impl Into<Scope>,
        calls: CloudCalls,
    ) -> Result<Inventory<M>, ApiError> {
        Inventory::new(AccessSource::Login(login), scope.into(), calls)
    }

    fn new(source: AccessSource, scope: Scope, calls: CloudCalls) -> Result<Inventory<M>, ApiError> {
        Ok(Inventory {
            questions: Questions::new(source, scope, calls)?,
            listed: Singleflight::default(),
            refreshed: Singleflight::default(),
            fresh_for: FRESH_FOR,
            last: Mutex::default(),
        })
    }

    pub fn cluster(&self) -> &str {
        &self.questions.scope.cluster
    }

    /// The machine with an id; `None` if the cluster has no such machine.
    pub async fn get(self: &Arc<Self>, id: MachineId) -> Result<Option<Arc<M>>, Arc<ApiError>> {
        Ok(self.listing_with(id).await?.get(&id).cloned())
    }

    /// The machine with an id. The cloud's answer is new, or at most `self.fresh_for` old.
    pub async fn get_fresh(self: &Arc<Self>, id: MachineId) -> Result<Option<Arc<M>>, Arc<ApiError>> {
        if let Some(listed) = self.listed.cached(self.fresh_for).await {
            return Ok(listed.get(&id).cloned());
        }
        let fresh = {
            let mut last = self.last();
            last.fresh.retain(|_, (asked_at, _)| asked_at.elapsed() <= self.fresh_for);
            last.fresh.get(&id).map(|(_, machine)| machine.clone())
        };
        if let Some(machine) = fresh {
            return Ok(machine);
        }
        let asked_at = Instant::now();
        let machine = self.unless_failed(self.questions.one(id)).await?.map(Arc::new);
        self.last().fresh.insert(id, (asked_at, machine.clone()));
        Ok(machine)
    }

    /// The machine with an id, and the machine whose Node has this name. Both are from one list.
    pub async fn get_with_namesake(
        self: &Arc<Self>,
        id: MachineId,
        node: &str,
    ) -> Result<(Option<Arc<M>>, Option<Arc<M>>), Arc<ApiError>> {
        let listing = self.listing_with(id).await?;
        let has_the_name = |machine: &&Arc<M>| machine.node_name() == node && !self.is_of_another(machine);
        let claimed = listing.get(&id);
        // If several machines have this name, and the machine with the id `id` is one of them, that machine is selected.
        let namesake = claimed.filter(has_the_name).or_else(|| listing.values().find(has_the_name));
        Ok((claimed.cloned(), namesake.cloned()))
    }

    /// Whether a second machine in the list has the name of this machine's Node. Makes no request.
    pub(super) fn has_namesake(&self, machine: &M) -> bool {
        let last = self.last();
        last.names.get(&machine.node_name()).is_some_and(|ids| ids.iter().any(|id| *id != machine.id()))
    }

    /// Whether a machine belongs to a different cluster. Such a machine is in a different network, so it may have the Node name of a
    /// machine of this cluster.
    fn is_of_another(&self, machine: &M) -> bool {
        matches!(machine.identify(self.cluster()), Err(Refusal::OtherCluster { .. }))
    }

    /// Remembers the addresses of all listed machines, and the Node names of all machines that do not belong to a different cluster.
    fn note(&self, last: &mut Last<M>, listing: &Listing<M>) {
        last.addresses.extend(listing.values().flat_map(|machine| machine.addresses()));
        for machine in listing.values().filter(|machine| !self.is_of_another(machine)) {
            last.names.entry(machine.node_name()).or_default().insert(machine.id());
        }
    }

    /// The list of all machines, which may come from the cache. If the list has several pages and lacks this id, the result may also
    /// contain machines that were created after the list was requested.
    pub(super) async fn listing_with(
        self: &Arc<Self>,
        id: MachineId,
    ) -> Result<Arc<Listing<M>>, Arc<ApiError>> {
        let (ttl, newest_ttl) = self.ttls();
        let machines = self.clone();
        let asking = self.listed.get(ttl, move || async move { machines.list().await });
        let listing = match self.stale(id, ttl + STALE) {
            // The stale list has the machine. Its stale entry is enough for the call-back, and for the labels of the machine's Node. So the
            // new list is awaited only for `SOON`.
            Some(stale) => match timeout(SOON, asking).await {
                Ok(Ok(listing)) => listing,
                Ok(Err(_)) | Err(_) => return Ok(stale),
            },
            None => asking.await?,
        };
        if listing.contains_key(&id) || self.last().pages <= 1 {
            return Ok(listing);
        }
        self.last().miss(id);
        let (machines, known) = (self.clone(), listing.clone());
        let refreshed =
            self.refreshed.get(newest_ttl, move || async move { machines.refresh(&known).await }).await?;
        Ok(if refreshed.contains_key(&id) { refreshed } else { listing })
    }

    /// The maximum age of the whole list, and of the list of the newest machines. Both ages grow with the number of pages, because each
    /// page costs a request.
    fn ttls(&self) -> (Duration, Duration) {
        let last = self.last();
        let ttl = |pages: u32| PAGE_TTL.saturating_mul(pages.max(1));
        (ttl(last.pages), ttl(last.newest_pages))
    }

    /// The last complete list, if it contains this machine and is at most `longest` old.
    pub(super) fn stale(&self, id: MachineId, longest: Duration) -> Option<Arc<Listing<M>>> {
        let last = self.last();
        let (asked_at, listing) = last.good.as_ref()?;
        (listing.contains_key(&id) && asked_at.elapsed() <= longest).then(|| listing.clone())
    }

    pub(super) async fn list(&self) -> Result<Listing<M>, ApiError> {
        let asked_at = Instant::now();
        let (listing, pages) = self.unless_failed(self.questions.pages(None)).await?;
        let mut last = self.last();
        last.pages = pages;
        last.good = Some((asked_at, Arc::new(listing.clone())));
        last.missed.clear();
        (last.addresses, last.names) = Default::default();
        self.note(&mut last, &listing);
        Ok(listing)
    }

    /// Adds machines that `known` lacks. First reads the newest machines, if the API can list the newest machines first. Then requests some
    /// of the missed ids (ids that no list contains). A missed machine is not always new: if a machine is removed while numbered pages are
    /// read, a later machine can move to a page that was already read. Then the list lacks the later machine.
    pub(super) async fn refresh(&self, known: &Listing<M>) -> Result<Listing<M>, ApiError> {
        let mut listing = known.clone();
        let may_ask = !M::API.newest_first.is_empty() && self.last().besides.try_take(Instant::now());
        if may_ask {
            let (newest, pages) = self.unless_failed(self.questions.pages(Some(known))).await?;
            self.last().newest_pages = pages;
            listing.extend(newest);
        }
        self.last().missed.retain(|id| !listing.contains_key(id));
        while let Some(id) = self.next_missed() {
            listing.extend(self.unless_failed(self.questions.one(id)).await?.map(|one| (id, Arc::new(one))));
        }
        self.note(&mut self.last(), &listing);
        Ok(listing)
    }

    /// The next missed id (an id that no list contains) to request, if the rate limit permits a request now.
    fn next_missed(&self) -> Option<MachineId> {
        let mut last = self.last();
        if last.missed.is_empty() || !last.besides.try_take(Instant::now()) {
            return None;
        }
        last.missed.pop_first()
    }

    /// Sends a request unless the API has just failed, and remembers a failure. During the pause after a failure, no caller sends a
    /// request.
    async fn unless_failed<T>(
        &self,
        asking: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        if let Some((until, error)) = &self.last().failed
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        let asked = asking.await;
        self.last().failed = asked.as_ref().err().map(|error| {
            let pause = error.retry_after().unwrap_or_default().max(PAGE_TTL);
            (Instant::now() + pause, error.clone())
        });
        asked
    }
}

impl<M> Last<M> {
    fn miss(&mut self, id: MachineId) {
        if self.missed.len() < MOST_MISSED {
            self.missed.insert(id);
        }
    }
}

impl<M> Inventory<M> {
    pub(super) fn last(&self) -> MutexGuard<'_, Last<M>> {
        self.last.lock()
    }
}

impl<M: Send + Sync> OwnAddresses for Inventory<M> {
    fn has_address(&self, address: IpAddr) -> bool {
        self.last().addresses.contains(&address)
    }
}
