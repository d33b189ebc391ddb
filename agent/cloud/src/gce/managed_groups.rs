//! Which managed instance group of the cluster lists an instance, for the controller of nodes
//! and the bootstrap server.
//!
//! Groups are asked, not instances: one list of a zone's groups, one list of each group's instances for all
//! questions about them, and each template once. Upstream begins with the instance and follows its `created-by`,
//! which costs four requests a node, for metadata that the instance may write itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kops_agent_plan::identity::gce::{
    self, GceCluster, GceInstance, GceRanges, InstancePath, InstanceTemplate, ManagedGroup, ManagedInstance,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::compute::Compute;
use crate::api::ApiError;
use crate::singleflight::Singleflight;

/// How old the list of the region's zones may be.
const ZONES_FOR: Duration = Duration::from_secs(10 * 60);
/// How old a list of a zone's groups may be, and how old where none of them has the instance. Made-up instances
/// cost no request each.
const GROUPS_FOR: [Duration; 2] = [Duration::from_secs(10 * 60), Duration::from_secs(30)];
/// How old a group's list may be that has the instance; and one that does not, or not running, where it was asked for after
/// the Node was there.
const LISTED_FOR: Duration = Duration::from_secs(10);
/// The same where an unverified request says that there is such an instance, for each page that the list has. A machine is in
/// the list before it starts, and takes longer than that until it can say so: one that asks too early retries.
const CLAIMED_FOR: Duration = Duration::from_secs(5);
/// Instances on a page of such a list.
const PAGE: usize = 500;
/// How old the list of a group may be that names its instances otherwise.
const UNLIKELY_FOR: Duration = Duration::from_secs(60);
/// How old a template may be: it never changes, but another may come after it under its name.
const TEMPLATE_FOR: Duration = Duration::from_secs(60 * 60);
/// How old an instance's key may be: it is of the instance as long as that has its number. Tokens that another
/// has signed cost no request each.
const KEY_FOR: Duration = Duration::from_secs(60 * 60);
/// The same where it has none, which may change.
const NO_KEY_FOR: Duration = Duration::from_secs(30);
/// Templates, and instances with their keys, that are remembered.
const MOST_REMEMBERED: usize = 8192;

type Asked<T> = Arc<Singleflight<T, ApiError>>;
type Remembered<K, T> = Mutex<BTreeMap<K, Asked<T>>>;
type Listing = BTreeMap<String, ManagedInstance>;

/// An instance as its group knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    /// What the group's list says of it.
    pub instance: ManagedInstance,
    /// The template that the group made it from.
    pub template: Arc<InstanceTemplate>,
}

/// The managed instance groups of a cluster's zones. Clones ask together.
#[derive(Clone, Debug)]
pub struct ManagedGroups(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    compute: Arc<Compute>,
    cluster: GceCluster,
    /// The zones that there are.
    region: Singleflight<BTreeSet<String>, ApiError>,
    zones: Mutex<BTreeMap<String, Arc<Zone>>>,
    /// By their paths below the project.
    templates: Remembered<String, InstanceTemplate>,
    /// By the instances' numbers.
    signing_keys: Remembered<u64, Option<String>>,
    instances: Remembered<u64, Option<GceInstance>>,
}

/// What a question about an instance is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    /// A Node, which the API server knows, and which says once which instance it is; it has done so since then at the
    /// latest.
    Node { since: Instant },
    /// A request that nothing has verified, and that may name a made-up instance.
    Stranger,
    /// The same, as long as it takes no question to Google.
    StrangerForFree,
}

/// Why there is no answer.
enum Unanswered {
    /// Google would have to be asked.
    NotRemembered,
    Failed(Arc<ApiError>),
}

#[derive(Debug, Default)]
struct Zone {
    groups: Singleflight<Vec<ManagedGroup>, ApiError>,
    /// By the instance's number.
    ranges: Singleflight<BTreeMap<u64, GceRanges>, ApiError>,
    /// By the group's name.
    listings: Mutex<BTreeMap<String, Asked<Listing>>>,
}

impl ManagedGroups {
    /// Asks Compute Engine for the groups of this cluster.
    pub fn of(compute: Compute, cluster: GceCluster) -> ManagedGroups {
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

    /// The instance of a Node as a group of the cluster has it in its list, and the template that it was made from; `None`
    /// if no group of the cluster lists it. `since` is when the Node was there already: a list that was asked for later, and no
    /// longer than some seconds ago, decides that its instance is not there, however many Nodes want to know.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn find(
        &self,
        instance: &InstancePath,
        since: Instant,
    ) -> Result<Option<Managed>, Arc<ApiError>> {
        asked(self.look(instance, Asker::Node { since }).await)
    }

    /// The same for an unverified request: a list of some seconds ago decides that there is no such instance, so that Google is asked as
    /// often for a thousand names as for one.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn find_claimed(&self, instance: &InstancePath) -> Result<Option<Managed>, Arc<ApiError>> {
        asked(self.look(instance, Asker::Stranger).await)
    }

    /// What [`ManagedGroups::find_claimed`] would say without asking Google; `None` if it would ask.
    pub async fn recall(&self, instance: &InstancePath) -> Option<Option<Managed>> {
        self.look(instance, Asker::StrangerForFree).await.ok()
    }

    async fn look(&self, instance: &InstancePath, asker: Asker) -> Result<Option<Managed>, Unanswered> {
        // Nothing is asked of, or remembered for, a zone that is made up.
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

    /// What there is of an instance; `None` if it does not exist.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn instance(&self, instance: &InstancePath) -> Result<Option<GceInstance>, Arc<ApiError>> {
        Ok(self.compute().instance(instance).await?)
    }

    /// The key, in PEM, with which the TPM of an instance signs; `None` if it has none.
    ///
    /// # Errors
    /// If that cannot be asked.
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

    /// The same without asking Google; `None` if that would have to be asked.
    pub async fn recall_signing_key(&self, instance: &ManagedInstance) -> Option<Arc<Option<String>>> {
        let asked = remembered(&self.0.signing_keys, instance.id);
        match asked.known(KEY_FOR).await {
            Some(key) if key.is_some() => Some(key),
            _ => asked.known(NO_KEY_FOR).await,
        }
    }

    /// What there is of an instance that a group lists, or was a moment ago; `None` if it does not exist. Another may have come
    /// after it under its name.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn managed(
        &self,
        instance: &ManagedInstance,
    ) -> Result<Arc<Option<GceInstance>>, Arc<ApiError>> {
        let asked = remembered(&self.0.instances, instance.id);
        let (compute, path) = (self.0.compute.clone(), instance.path.clone());
        asked.get(LISTED_FOR, move || async move { compute.instance(&path).await }).await
    }

    /// The external IPv6 ranges of an instance that a group lists; `None` if its zone does not list it. An instance has its
    /// ranges before it starts, so a list of some seconds ago decides, however many instances have none.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn ranges(&self, instance: &ManagedInstance) -> Result<Option<GceRanges>, Arc<ApiError>> {
        let zone = self.0.zones.lock().entry(instance.path.zone.clone()).or_default().clone();
        let (compute, name) = (self.0.compute.clone(), instance.path.zone.clone());
        let ask = move || async move {
            let ranges = compute.ranges(&name).await;
            ranges.map(|ranges| ranges.into_iter().map(|of_one| (of_one.id, of_one)).collect())
        };
        Ok(zone.ranges.get(LISTED_FOR, ask).await?.get(&instance.id).cloned())
    }

    /// The groups of a zone, of whatever cluster.
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
                // Google has no such zone.
                Err(error) if error.is_absent() => Ok(Vec::new()),
                answer => answer,
            }
        };
        let groups = asker.get(&zone.groups, longest, ask).await?;
        zone.listings.lock().retain(|name, _| groups.iter().any(|group| group.name == *name));
        Ok(groups)
    }

    /// Whether a group makes instances of the cluster.
    async fn is_of_cluster(&self, group: &ManagedGroup, asker: Asker) -> Result<bool, Unanswered> {
        for url in &group.instance_templates {
            let template = self.template(url, asker).await?;
            if template.is_some_and(|template| gce::is_of_cluster(&template, self.cluster())) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What a group's list says of an instance.
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
                        // Only what was asked for: no Node is to be identified by an answer to another question.
                        let of_zone = instances.into_iter().filter(|listed| listed.path.zone == zone);
                        Ok(of_zone.map(|instance| (instance.path.name.clone(), instance)).collect())
                    }
                    // It is gone since the groups were listed.
                    Err(error) if error.is_absent() => Ok(Listing::new()),
                    Err(error) => Err(error),
                }
            }
        };
        let is_likely = gce::names_so(group, &instance.name);
        let longest = match (is_likely, asker) {
            (false, _) => UNLIKELY_FOR,
            (true, Asker::Node { .. }) => LISTED_FOR,
            (true, Asker::Stranger | Asker::StrangerForFree) => {
                let last = listing.known(UNLIKELY_FOR).await;
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
            Asker::Stranger | Asker::StrangerForFree => claimed_for(known.len()),
        };
        Ok(asker.get(&listing, longest, ask()).await?.get(&instance.name).cloned())
    }

    /// The template of a URL; `None` if it is none of the project's, or gone.
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
    /// The answer to a question, from `ask` where Google may be asked and what is remembered is too old.
    async fn get<T: Send + Sync + 'static, A: Future<Output = Result<T, ApiError>> + Send + 'static>(
        self,
        asked: &Singleflight<T, ApiError>,
        longest: Duration,
        ask: impl FnOnce() -> A + Send + 'static,
    ) -> Result<Arc<T>, Unanswered> {
        match self {
            Asker::Node { .. } | Asker::Stranger => asked.get(longest, ask).await.map_err(Unanswered::Failed),
            Asker::StrangerForFree => asked.known(longest).await.ok_or(Unanswered::NotRemembered),
        }
    }
}

/// The answer to a question that may be put to Google.
fn asked<T>(answer: Result<T, Unanswered>) -> Result<T, Arc<ApiError>> {
    answer.map_err(|unanswered| match unanswered {
        Unanswered::Failed(error) => error,
        Unanswered::NotRemembered => unreachable!("what may be asked is not only remembered"),
    })
}

/// How old the list of a group of so many instances may be for an unverified request: one of many pages costs as many questions.
fn claimed_for(instances: usize) -> Duration {
    CLAIMED_FOR.saturating_mul(u32::try_from(instances / PAGE + 1).unwrap_or(u32::MAX))
}

/// What was asked under a key, or is to be.
fn remembered<K: Ord, T>(all: &Remembered<K, T>, key: K) -> Asked<T> {
    let mut all = all.lock();
    if all.len() >= MOST_REMEMBERED && !all.contains_key(&key) {
        all.clear();
    }
    all.entry(key).or_default().clone()
}

#[cfg(test)]
mod tests;
