//! What is known of a cluster's machines: the whole list, as old as its length allows, and the machines that were made since.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_net::{http, tls};
use kops_agent_plan::identity::Refusal;
use kops_agent_plan::machine_id::MachineId;
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

/// How old the list may be for each page that it has: a fifth of what a cloud answers in an hour. The newest machines are asked for
/// as often at most.
pub(super) const PAGE_TTL: Duration = Duration::from_secs(5);
/// How much older a list may be while the next one fails or takes its time, for the machines that are in it.
pub(super) const STALE: Duration = Duration::from_secs(60);
/// How long a machine that an older list has waits for a new one.
const SOON: Duration = Duration::from_secs(3);
/// How old an answer may be by which a machine gets certificates.
const FRESH_FOR: Duration = Duration::from_secs(10);
/// What is asked for since an id is in no list: so many requests at once, and so many a second after that. Strangers can make up ids,
/// and three replicas that do this all the time still leave a tenth of what a cloud answers in an hour to others.
const BESIDES_BURST: f64 = 30.0;
const BESIDES_PER_SECOND: f64 = 0.1;
/// The most ids at a time that no list has and that are still to be asked for: unverified requests can name any number of them.
const MOST_MISSED: usize = 1000;

/// The machines of one cluster.
#[derive(Debug)]
pub struct Inventory<M> {
    pub(super) questions: Questions,
    listed: Singleflight<Listing<M>, ApiError>,
    /// The same, with machines made since.
    refreshed: Singleflight<Listing<M>, ApiError>,
    pub(super) fresh_for: Duration,
    pub(super) last: Mutex<Last<M>>,
}

/// What was last asked for.
#[derive(Debug)]
pub(super) struct Last<M> {
    /// The pages of the whole list.
    pages: u32,
    /// The pages that had machines which were not in it.
    newest_pages: u32,
    /// The whole list, and when it was asked for.
    pub(super) good: Option<(Instant, Arc<Listing<M>>)>,
    /// Until when the API is not asked again, and why.
    pub(super) failed: Option<(Instant, ApiError)>,
    /// Ids that no list has.
    missed: BTreeSet<MachineId>,
    /// What may be asked besides the whole list.
    besides: TokenBucket,
    /// Machines as they were when they were last asked for one by one, and when that was.
    fresh: BTreeMap<MachineId, (Instant, Option<Arc<M>>)>,
    /// The addresses of all machines when they were last listed.
    addresses: BTreeSet<IpAddr>,
}

impl<M> Default for Last<M> {
    fn default() -> Last<M> {
        Last {
            pages: 0,
            newest_pages: 0,
            good: None,
            failed: None,
            missed: BTreeSet::new(),
            besides: TokenBucket::of(BESIDES_BURST, BESIDES_PER_SECOND),
            fresh: BTreeMap::new(),
            addresses: BTreeSet::new(),
        }
    }
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
        let token =
            http::secret(&format!("{before}{}", token.trim())).map_err(|_| ApiError::NoToken { variable })?;
        let access = Access::of::<M>(&Session { endpoint: endpoint.to_owned(), token }, &scope)?;
        Inventory::of(AccessSource::Fixed(Arc::new(access)), scope, calls)
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
        Inventory::of(AccessSource::Login(login), scope.into(), calls)
    }

    fn of(source: AccessSource, scope: Scope, calls: CloudCalls) -> Result<Inventory<M>, ApiError> {
        Ok(Inventory {
            questions: Questions::of(source, scope, calls)?,
            listed: Singleflight::default(),
            refreshed: Singleflight::default(),
            fresh_for: FRESH_FOR,
            last: Mutex::default(),
        })
    }

    pub fn cluster(&self) -> &str {
        &self.questions.scope.cluster
    }

    /// The machine with an id; `None` if the cluster has none.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn get(self: &Arc<Self>, id: MachineId) -> Result<Option<Arc<M>>, Arc<ApiError>> {
        Ok(self.listing_with(id).await?.get(&id).cloned())
    }

    /// The machine with an id, as the cloud has it now, or had it some seconds ago.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn get_fresh(self: &Arc<Self>, id: MachineId) -> Result<Option<Arc<M>>, Arc<ApiError>> {
        if let Some(listed) = self.listed.known(self.fresh_for).await {
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

    /// The list of all machines; where it has none of this id, and so many pages that it is not asked for within seconds, the same
    /// with those made since.
    pub(super) async fn listing_with(
        self: &Arc<Self>,
        id: MachineId,
    ) -> Result<Arc<Listing<M>>, Arc<ApiError>> {
        let (ttl, newest_ttl) = self.ttls();
        let machines = self.clone();
        let asking = self.listed.get(ttl, move || async move { machines.list().await });
        let listing = match self.stale(id, ttl + STALE) {
            // A machine that was there a moment ago can still be called back, or be labelled.
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

    /// How old the list may be, and what was made since: a list of many pages costs as many requests.
    fn ttls(&self) -> (Duration, Duration) {
        let last = self.last();
        let ttl = |pages: u32| PAGE_TTL.saturating_mul(pages.max(1));
        (ttl(last.pages), ttl(last.newest_pages))
    }

    /// The last list that came to its end, if it has a machine and is no older than this.
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
        last.addresses = listing.values().flat_map(|machine| machine.addresses()).collect();
        Ok(listing)
    }

    /// These machines, with those that were made since: the newest, where the API lists them first, and then some of those that
    /// were missed, which can also be older ones: where pages go by numbers, a machine moves to the page before when another one
    /// is removed.
    pub(super) async fn refresh(&self, known: &Listing<M>) -> Result<Listing<M>, ApiError> {
        let mut listing = known.clone();
        let may_ask = !M::API.newest_first.is_empty() && self.last().besides.has_one(Instant::now());
        if may_ask {
            let (newest, pages) = self.unless_failed(self.questions.pages(Some(known))).await?;
            self.last().newest_pages = pages;
            listing.extend(newest);
        }
        self.last().missed.retain(|id| !listing.contains_key(id));
        while let Some(id) = self.next_missed() {
            listing.extend(self.unless_failed(self.questions.one(id)).await?.map(|one| (id, Arc::new(one))));
        }
        self.last().addresses.extend(listing.values().flat_map(|machine| machine.addresses()));
        Ok(listing)
    }

    /// The next id that was missed, and is to be asked for now.
    fn next_missed(&self) -> Option<MachineId> {
        let mut last = self.last();
        if last.missed.is_empty() || !last.besides.has_one(Instant::now()) {
            return None;
        }
        last.missed.pop_first()
    }

    /// Asks, unless the API has just failed, and keeps the failure: callers that come meanwhile must not multiply the questions.
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
