//! Finds the managed instance group of the cluster that lists an instance, for the node controller and the bootstrap server.
//!
//! The requests are for lists: the groups of each zone, and the instances of each group. One list answers all questions about the instances
//! of a group. Each template is requested once. Upstream begins with the instance, and finds its group by its `created-by` metadata. That
//! costs four requests a node, and an instance can write this metadata itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kops_agent_cluster::identity::gce::{
    self, GceCluster, GceInstance, GceRanges, InstancePath, InstanceTemplate, ManagedGroup, ManagedInstance,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::compute::Compute;
use crate::api::ApiError;
use crate::singleflight::Singleflight;

/// The maximum age of the list of the region's zones.
const ZONES_FOR: Duration = Duration::from_secs(10 * 60);
/// The maximum ages of the list of a zone's groups. The first value applies if a group has the instance, the second value otherwise. The
/// second value lets requests for many made-up instances share one list.
const GROUPS_FOR: [Duration; 2] = [Duration::from_secs(10 * 60), Duration::from_secs(30)];
/// The maximum age of a group's list. A list proves that a Node's instance is not running only if the list was also requested after the
/// Node was observed.
const LISTED_FOR: Duration = Duration::from_secs(10);
/// The maximum age of a group's cached list for an unverified request is this value, multiplied by the list's number of pages. Google lists
/// a machine before the machine starts, and the start takes longer than this value. So a cached list usually contains the machine. If the
/// list lacks the machine, the machine's request is rejected, and the machine retries.
const CLAIMED_FOR: Duration = Duration::from_secs(5);
/// The number of instances on a page of a group's list.
const PAGE: usize = 500;
/// The maximum age of a group's list if the requested instance's name does not begin with the group's base name and a dash.
const UNLIKELY_FOR: Duration = Duration::from_secs(60);
/// The maximum age of a template. A template never changes, but a new template may replace a deleted template of the same name.
const TEMPLATE_FOR: Duration = Duration::from_secs(60 * 60);
/// The maximum age of an instance's key. The key of an instance number never changes. The cache lets many tokens with a wrong signature
/// share one request.
const KEY_FOR: Duration = Duration::from_secs(60 * 60);
/// How long the answer "this instance has no key" is cached. The instance may get a key later.
const NO_KEY_FOR: Duration = Duration::from_secs(30);
/// The maximum number of entries in each of three caches: of templates, of the instances' signing keys, and of instances.
const MOST_REMEMBERED: usize = 8192;

type CacheEntry<T> = Arc<Singleflight<T, ApiError>>;
type Remembered<K, T> = Mutex<BTreeMap<K, CacheEntry<T>>>;
type Listing = BTreeMap<String, ManagedInstance>;

/// An instance that a group lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    /// The instance's entry in the group's list.
    pub instance: ManagedInstance,
    /// The template from which the group made the instance.
    pub template: Arc<InstanceTemplate>,
}

/// The managed instance groups of a cluster's zones. Clones share requests.
#[derive(Clone, Debug)]
pub struct ManagedGroups(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    compute: Arc<Compute>,
    cluster: GceCluster,
    /// The zones of the region.
    region: Singleflight<BTreeSet<String>, ApiError>,
    zones: Mutex<BTreeMap<String, Arc<Zone>>>,
    /// Keyed by path below the project.
    templates: Remembered<String, InstanceTemplate>,
    /// Keyed by the number of the instance.
    signing_keys: Remembered<u64, Option<String>>,
    instances: Remembered<u64, Option<GceInstance>>,
}

/// Who asks about an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    /// A Node from the API server. At `since`, the Node already named its instance in `spec.providerID`, which never changes.
    Node { since: Instant },
    /// An unverified request, which may name a made-up instance.
    Stranger,
    /// An unverified request that only the cache may answer.
    StrangerFromCache,
}

enum Unanswered {
    /// The cache has no answer, and Google may not be asked.
    NotCached,
    Failed(Arc<ApiError>),
}

#[derive(Debug, Default)]
struct Zone {
    groups: Singleflight<Vec<ManagedGroup>, ApiError>,
    /// Keyed by the number of the instance.
    ranges: Singleflight<BTreeMap<u64, GceRanges>, ApiError>,
    /// Keyed by the name of the group.
    listings: Mutex<BTreeMap<String, CacheEntry<Listing>>>,
}

impl ManagedGroups {
    pub fn new(compute: Compute, cluster: GceCluster) -> ManagedGroups {
        ManagedGroups(Arc::new(Inner {
            compute: Arc::new(compute),
            cluster,
            region: Singleflight::default(),
            zones: Mutex::default(),
            templates: Mutex::default(),
            signing_keys: Mutex::default(),
            instances: Mutex::default(),
        }))
    }

    pub fn cluster(&self) -> &GceCluster {
        &self.0.cluster
    }

    pub fn compute(&self) -> &Compute {
        &self.0.compute
    }

    /// The instance of a Node, from the list of its group, with its template. `None` if no group of the cluster lists it. The Node existed
    /// at `since`. Only a list that was requested after `since` and is at most some seconds old proves that the instance is absent. One
    /// list answers the questions about all Nodes.
    pub async fn find(
        &self,
        instance: &InstancePath,
        since: Instant,
    ) -> Result<Option<Managed>, Arc<ApiError>> {
        unwrap_answer(self.find_for(instance, Asker::Node { since }).await)
    }

    /// Like `find`, for an unverified request. A list that is some seconds old is enough proof that the instance is absent. Therefore
    /// requests for many made-up instances share one list.
    pub async fn find_claimed(&self, instance: &InstancePath) -> Result<Option<Managed>, Arc<ApiError>> {
        unwrap_answer(self.find_for(instance, Asker::Stranger).await)
    }

    /// The result of [`ManagedGroups::find_claimed`] without a request to Google; `None` if a request is necessary.
    pub async fn recall(&self, instance: &InstancePath) -> Option<Option<Managed>> {
        self.find_for(instance, Asker::StrangerFromCache).await.ok()
    }

    async fn find_for(&self, instance: &InstancePath, asker: Asker) -> Result<Option<Managed>, Unanswered> {
        // A made-up zone causes no additional request and no cache entry.
        let (compute, region) = (self.0.compute.clone(), self.cluster().region.clone());
        let zones = move || async move { compute.zones(&region).await };
        let zones = asker.get(&self.0.region, ZONES_FOR, zones).await?;
        if !zones.contains(&instance.zone) {
            return Ok(None);
        }
        let zone = self.0.zones.lock().entry(instance.zone.clone()).or_default().clone();
        let mut looked_at = BTreeSet::new();
        for longest in GROUPS_FOR {
            let groups = self.groups(&zone, &instance.zone, longest, asker).await?;
            for group in gce::in_order_of_likelihood(&groups, &instance.name, self.cluster()) {
                if looked_at.contains(&group.name) || !self.is_of_cluster(group, asker).await? {
                    continue;
                }
                looked_at.insert(group.name.clone());
                if let Some(instance) = self.listed(&zone, group, instance, asker).await? {
                    let template = self.template(&instance.instance_template, asker).await?;
                    let template = template.unwrap_or_default();
                    return Ok(Some(Managed { instance, template }));
                }
            }
        }
        Ok(None)
    }

    /// An instance as Google describes it; `None` if it does not exist.
    pub async fn instance(&self, instance: &InstancePath) -> Result<Option<GceInstance>, Arc<ApiError>> {
        Ok(self.compute().instance(instance).await?)
    }

    /// The public key, in PEM, for the signatures of an instance's TPM; `None` if the instance has no key.
    pub async fn signing_key(
        &self,
        instance: &ManagedInstance,
    ) -> Result<Arc<Option<String>>, Arc<ApiError>> {
        if let Some(known) = self.recall_signing_key(instance).await {
            return Ok(known);
        }
        let asked = remembered(&self.0.signing_keys, instance.id);
        let (compute, path) = (self.0.compute.clone(), instance.path.clone());
        asked.get(NO_KEY_FOR, move || async move { compute.signing_key(&path).await }).await
    }

    /// The result of `signing_key` without a request to Google; `None` if a request is necessary.
    pub async fn recall_signing_key(&self, instance: &ManagedInstance) -> Option<Arc<Option<String>>> {
        let asked = remembered(&self.0.signing_keys, instance.id);
        match asked.cached(KEY_FOR).await {
            Some(key) if key.is_some() => Some(key),
            _ => asked.cached(NO_KEY_FOR).await,
        }
    }

    /// Google's description of an instance that a group lists, or listed recently; `None` if the instance does not exist. If a new instance
    /// of the same name has replaced the listed instance, the result may describe the new instance.
    pub async fn managed(
        &self,
        instance: &ManagedInstance,
    ) -> Result<Arc<Option<GceInstance>>, Arc<ApiError>> {
        let asked = remembered(&self.0.instances, instance.id);
        let (compute, path) = (self.0.compute.clone(), instance.path.clone());
        asked.get(LISTED_FOR, move || async move { compute.instance(&path).await }).await
    }

    /// The external IPv6 ranges of an instance that a group lists; `None` if the zone's list lacks the instance. An instance has its ranges
    /// before it starts, so a list that is some seconds old is sufficient. Instances without ranges cause no additional requests.
    pub async fn ranges(&self, instance: &ManagedInstance) -> Result<Option<GceRanges>, Arc<ApiError>> {
        let zone = self.0.zones.lock().entry(instance.path.zone.clone()).or_default().clone();
        let (compute, name) = (self.0.compute.clone(), instance.path.zone.clone());
        let ask = move || async move {
            let ranges = compute.ranges(&name).await;
            ranges.map(|ranges| ranges.into_iter().map(|of_one| (of_one.id, of_one)).collect())
        };
        Ok(zone.ranges.get(LISTED_FOR, ask).await?.get(&instance.id).cloned())
    }

    /// The groups in a zone, including groups of other clusters.
    async fn groups(
        &self,
        zone: &Zone,
        name: &str,
        longest: Duration,
        asker: Asker,
    ) -> Result<Arc<Vec<ManagedGroup>>, Unanswered> {
        let (compute, name) = (self.0.compute.clone(), name.to_owned());
        let ask = move || async move {
            match compute.managed_groups(&name).await {
                // A zone that Google does not know has no groups.
                Err(error) if error.is_absent() => Ok(Vec::new()),
                answer => answer,
            }
        };
        let groups = asker.get(&zone.groups, longest, ask).await?;
        zone.listings.lock().retain(|name, _| groups.iter().any(|group| group.name == *name));
        Ok(groups)
    }

    /// Whether one of the group's templates is for instances of the cluster.
    async fn is_of_cluster(&self, group: &ManagedGroup, asker: Asker) -> Result<bool, Unanswered> {
        for url in &group.instance_templates {
            let template = self.template(url, asker).await?;
            if template.is_some_and(|template| gce::is_of_cluster(&template, self.cluster())) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn listed(
        &self,
        zone: &Zone,
        group: &ManagedGroup,
        instance: &InstancePath,
        asker: Asker,
    ) -> Result<Option<ManagedInstance>, Unanswered> {
        let listing = zone.listings.lock().entry(group.name.clone()).or_default().clone();
        let ask = || {
            let (compute, zone, group) = (self.0.compute.clone(), instance.zone.clone(), group.name.clone());
            move || async move {
                match compute.managed_instances(&zone, &group).await {
                    Ok(instances) => {
                        // Keep only the instances of the requested zone. If the server mixes up responses, the response for another zone
                        // must not identify a Node.
                        let of_zone = instances.into_iter().filter(|listed| listed.path.zone == zone);
                        Ok(of_zone.map(|instance| (instance.path.name.clone(), instance)).collect())
                    }
                    // The group was deleted after the groups were listed, so it has no instances.
                    Err(error) if error.is_absent() => Ok(Listing::new()),
                    Err(error) => Err(error),
                }
            }
        };
        let is_likely = gce::names_so(group, &instance.name);
        let longest = match (is_likely, asker) {
            (false, _) => UNLIKELY_FOR,
            (true, Asker::Node { .. }) => LISTED_FOR,
            (true, Asker::Stranger | Asker::StrangerFromCache) => {
                let last = listing.cached(UNLIKELY_FOR).await;
                LISTED_FOR.max(claimed_for(last.map_or(0, |last| last.len())))
            }
        };
        let known = asker.get(&listing, longest, ask()).await?;
        let listed = known.get(&instance.name).cloned();
        if !is_likely || listed.as_ref().is_some_and(gce::is_at_work) {
            return Ok(listed);
        }
        let longest = match asker {
            Asker::Node { since } => LISTED_FOR.min(since.elapsed()),
            Asker::Stranger | Asker::StrangerFromCache => claimed_for(known.len()),
        };
        Ok(asker.get(&listing, longest, ask()).await?.get(&instance.name).cloned())
    }

    /// The template at a URL; `None` if the URL is not the URL of a template, or the template is deleted.
    async fn template(&self, url: &str, asker: Asker) -> Result<Option<Arc<InstanceTemplate>>, Unanswered> {
        let Some(path) = gce::template_path(url) else { return Ok(None) };
        let asked = remembered(&self.0.templates, path.to_owned());
        let (compute, path) = (self.0.compute.clone(), path.to_owned());
        match asker
            .get(&asked, TEMPLATE_FOR, move || async move { compute.instance_template(&path).await })
            .await
        {
            Ok(template) => Ok(Some(template)),
            Err(Unanswered::Failed(error)) if error.is_absent() => Ok(None),
            Err(unanswered) => Err(unanswered),
        }
    }
}

impl Asker {
    /// Returns the cached answer if it is at most `longest` old. Otherwise, an asker that may cause requests gets a new answer from `ask`.
    /// Any other asker gets `NotCached`.
    async fn get<T: Send + Sync + 'static, A: Future<Output = Result<T, ApiError>> + Send + 'static>(
        self,
        asked: &Singleflight<T, ApiError>,
        longest: Duration,
        ask: impl FnOnce() -> A + Send + 'static,
    ) -> Result<Arc<T>, Unanswered> {
        match self {
            Asker::Node { .. } | Asker::Stranger => asked.get(longest, ask).await.map_err(Unanswered::Failed),
            Asker::StrangerFromCache => asked.cached(longest).await.ok_or(Unanswered::NotCached),
        }
    }
}

/// Unwraps the answer for an asker that may cause requests. For this asker, `NotCached` does not occur.
fn unwrap_answer<T>(answer: Result<T, Unanswered>) -> Result<T, Arc<ApiError>> {
    answer.map_err(|unanswered| match unanswered {
        Unanswered::Failed(error) => error,
        Unanswered::NotCached => {
            unreachable!("an asker that may ask Google always gets an answer or an error")
        }
    })
}

/// The maximum age of a group's list with this many instances, for an unverified request. The age grows with the list,
/// because each page costs a request.
fn claimed_for(instances: usize) -> Duration {
    CLAIMED_FOR.saturating_mul(u32::try_from(instances / PAGE + 1).unwrap_or(u32::MAX))
}

/// Returns the cache entry for a key, and creates the entry if it is missing.
fn remembered<K: Ord, T>(all: &Remembered<K, T>, key: K) -> CacheEntry<T> {
    let mut all = all.lock();
    if all.len() >= MOST_REMEMBERED && !all.contains_key(&key) {
        all.clear();
    }
    all.entry(key).or_default().clone()
}

#[cfg(test)]
mod tests;
