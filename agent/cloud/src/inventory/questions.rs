//! Requests to the API of a cloud that lists machines: for pages of the list, and for one machine.
//!
//! A page that fails is retried. A throttled page is retried after the API's `Retry-After`. So a long list completes, and is not
//! read again from its first page.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_cluster::identity::Refusal;
use kops_agent_cluster::machine_id::MachineId;
use kops_agent_net::http::innermost_cause;
use kops_agent_net::retry::{Pauses, Retries};
use reqwest::header::HeaderMap;
use reqwest::{Client, Url};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::access::{Access, AccessSource};
use super::{Listed, PageAt, PagedBy, Scope, selection};
use crate::api::{self, ApiError, Question};
use crate::calls::CloudCalls;
use crate::rate_limiter::RateLimiter;

/// The maximum number of pages of a list. No project has so many pages.
const MOST_PAGES: u32 = 200;
/// The rate limit of all requests: a burst, and then a number of requests per second. Lists and their refreshes use half of the rate. The
/// other half is for retries.
const BURST: f64 = 200.0;
const PER_SECOND: f64 = 1.0;
/// The pause after a throttled request if the API does not specify a pause.
const PAUSE: Duration = Duration::from_secs(2);
/// A bootstrapping machine waits at most 15 seconds for its response, so no attempt starts later than 5 seconds after the first attempt.
/// One attempt may still take 30 seconds, because Nova may need more than 15 seconds for a page of a thousand servers.
const RETRIES: Retries = Retries {
    deadline: Duration::from_secs(5),
    attempt: Duration::from_secs(30),
    pauses: Pauses { first: Duration::from_millis(250), longest: Duration::from_secs(2) },
};

/// The machines of a cluster, by their ids.
pub(super) type Listing<M> = BTreeMap<MachineId, Arc<M>>;

#[derive(Debug)]
pub(super) struct Questions {
    client: Client,
    source: AccessSource,
    pub(super) scope: Scope,
    calls: CloudCalls,
    pub(super) limiter: RateLimiter,
    pub(super) retries: Retries,
}

/// Which page of a list to request.
#[derive(Clone, Copy)]
struct At {
    number: u32,
    /// The last machine on the previous page.
    marker: Option<MachineId>,
}

impl Questions {
    pub(super) fn new(source: AccessSource, scope: Scope, calls: CloudCalls) -> Result<Questions, ApiError> {
        Ok(Questions {
            client: source.client()?,
            source,
            scope,
            calls,
            limiter: RateLimiter::new(BURST, PER_SECOND),
            retries: RETRIES,
        })
    }

    /// All machines of the cluster, and the number of pages read. If `known` is given, reading stops after the first page with a known
    /// machine.
    pub(super) async fn pages<M: Listed>(
        &self,
        known: Option<&Listing<M>>,
    ) -> Result<(Listing<M>, u32), ApiError> {
        let is_known = |machine: &M| known.is_some_and(|known| known.contains_key(&machine.id()));
        let mut machines = BTreeMap::new();
        let mut at = At { number: 1, marker: None };
        loop {
            let (page, total) = self.page::<M>(at).await?;
            let (of_page, following) = M::of_page(page, PageAt { number: at.number, total });
            let has_next = following.is_some_and(|next| next > at.number) && !of_page.iter().any(is_known);
            let marker = of_page.last().map(M::id);
            let own = of_page.into_iter().filter(|machine| machine.is_listed_for(&self.scope.cluster));
            machines.extend(own.map(|machine| (machine.id(), Arc::new(machine))));
            if !has_next {
                return Ok((machines, at.number));
            }
            let is_endless = M::PAGED_BY == PagedBy::Marker && (marker.is_none() || marker == at.marker);
            if is_endless || at.number == MOST_PAGES {
                let access = self.source.access::<M>(&self.scope).await?;
                return Err(access.question::<M>(M::API.action).garbage(200, "its pages have no end"));
            }
            at = At { number: at.number + 1, marker };
        }
    }

    /// A page, and the number of machines on all pages, if the response headers contain it.
    async fn page<M: Listed>(&self, at: At) -> Result<(M::Page, Option<u64>), ApiError> {
        let address = |access: &Access| {
            let mut url = access.list.clone();
            let page = match M::PAGED_BY {
                PagedBy::Number => Some(("page", at.number.to_string())),
                PagedBy::Marker => at.marker.map(|marker| ("marker", marker.to_string())),
            };
            url.query_pairs_mut().extend_pairs(page);
            url
        };
        let (headers, page) = self.ask::<M, M::Page>(M::API.action, address).await?;
        Ok((page, selection::total(&headers)))
    }

    /// The machine with this id, if the cluster has it.
    pub(super) async fn one<M: Listed>(&self, id: MachineId) -> Result<Option<M>, ApiError> {
        let address = |access: &Access| access.one(id);
        let one = match self.ask::<M, M::One>(M::API.action_of_one, address).await {
            Ok((_headers, one)) => M::of_one(one, &self.scope),
            // A 404 of the API means that the machine is absent. For a 404 of another server, such as a proxy, `is_refusal` is false.
            Err(error) if error.status() == Some(404) && error.is_refusal() => None,
            Err(error) => return Err(error),
        };
        let is_own = |machine: &M| {
            machine.id() == id
                && machine.is_listed_for(&self.scope.cluster)
                && !matches!(
                    machine.identify(&self.scope.cluster),
                    Err(Refusal::OtherCluster { .. } | Refusal::NoCluster { .. })
                )
        };
        Ok(one.filter(is_own))
    }

    /// Requests the URL that `address` builds, with retries.
    async fn ask<M: Listed, T: DeserializeOwned>(
        &self,
        action: &'static str,
        address: impl Fn(&Access) -> Url,
    ) -> Result<(HeaderMap, T), ApiError> {
        let what = format!("{}, {action}", M::API.api.name);
        let attempt = || async {
            let mut access = self.source.access::<M>(&self.scope).await?;
            let asked = self.send(&access, address(&access), access.question::<M>(action)).await;
            // The API may revoke a token before its expiry. A second rejection is final.
            let is_refused = asked.as_ref().is_err_and(|error| error.status() == Some(401));
            if !is_refused || !self.source.forget(&access).await {
                return asked;
            }
            access = self.source.access::<M>(&self.scope).await?;
            self.send(&access, address(&access), access.question::<M>(action)).await
        };
        self.retries.run(&what, attempt, ApiError::retried_for).await.map_err(|gave_up| gave_up.error)
    }

    /// Sends one request when the rate limit permits it, and reads the response.
    async fn send<T: DeserializeOwned>(
        &self,
        access: &Access,
        url: Url,
        question: Question<'_>,
    ) -> Result<(HeaderMap, T), ApiError> {
        let request = self.client.get(url).headers(access.headers.clone()).build();
        let request = request.map_err(|error| question.unreachable(innermost_cause(error)))?;
        self.limiter.acquire().await;
        let answer = timeout(self.retries.attempt, api::ask_whole(&self.client, request, question)).await;
        let answer = answer.unwrap_or_else(|_| {
            Err(question.unreachable(format!("no answer in {} seconds", self.retries.attempt.as_secs())))
        });
        let answer = answer.and_then(|(headers, body)| {
            let read = serde_json::from_slice(&body).map_err(|error| question.garbage(200, error));
            Ok((headers, read?))
        });
        self.calls.count(access.service, question.action, api::outcome(&answer));
        self.limiter.pause_if_throttled(&answer, PAUSE);
        answer
    }
}
