//! The machines in the resource group of a cluster, in scale sets or standalone, for the node controller and the bootstrap
//! server.
//!
//! The requests are for lists: the scale sets of the resource group, the machines of each scale set, the addresses of these machines, and
//! the machines outside scale sets. Upstream requests each machine and each of its network interfaces, which costs two requests a node. A
//! made-up name of a scale set costs no request of its own, and nothing is cached for this name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_cluster::identity::Refusal;
use kops_agent_cluster::identity::azure::{AzureCluster, AzureMachine, MachinePath};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::arm::Arm;
use crate::api::ApiError;
use crate::singleflight::Singleflight;
use crate::verify::OwnAddresses;

/// The maximum ages of the list of scale sets. The first value applies if the list contains the wanted scale set, the second value
/// otherwise.
const SETS_FOR: [Duration; 2] = [Duration::from_secs(10 * 60), Duration::from_secs(30)];
/// The maximum age of a list of machines. A list proves that a Node's machine is not running only if the list was also requested after the
/// Node was observed.
const LISTED_FOR: Duration = Duration::from_secs(10);
/// The maximum age of a list of machines for a bootstrap request, per hundred machines in the list. Azure lists a machine before the
/// machine starts, so a cached list usually contains it. If not, the machine retries.
const CLAIMED_FOR: Duration = Duration::from_secs(5);
/// The approximate number of machines on a page of a list.
const PAGE: usize = 100;
/// The maximum age of a list that is searched for a second machine with a Node's name.
const NAMESAKES_FOR: Duration = Duration::from_secs(60);

type Machines = BTreeMap<String, AzureMachine>;
type Addresses = BTreeMap<String, Vec<IpAddr>>;
/// The name of a scale set, in lower case; `None` stands for the machines outside scale sets.
type SetName = Option<String>;

/// The scale sets of a cluster. Clones share the cached lists.
#[derive(Clone, Debug)]
pub struct ScaleSets(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    arm: Arc<Arm>,
    cluster: AzureCluster,
    /// The names of all scale sets, in lower case.
    names: Singleflight<BTreeSet<String>, ApiError>,
    sets: Mutex<BTreeMap<SetName, Arc<ScaleSet>>>,
    /// The addresses of all machines of each scale set, from the last list of the scale set.
    addresses: Arc<Mutex<BTreeMap<SetName, BTreeSet<IpAddr>>>>,
}

#[derive(Debug, Default)]
struct ScaleSet {
    machines: Singleflight<Machines, ApiError>,
    addresses: Singleflight<Addresses, ApiError>,
}

impl ScaleSets {
    pub fn new(arm: Arm, cluster: AzureCluster) -> ScaleSets {
        ScaleSets(Arc::new(Inner {
            arm: Arc::new(arm),
            cluster,
            names: Singleflight::default(),
            sets: Mutex::default(),
            addresses: Arc::default(),
        }))
    }

    pub fn cluster(&self) -> &AzureCluster {
        &self.0.cluster
    }

    /// The machine of a Node that existed at `since`; `None` if no list has the machine. A list proves that the machine is absent only if
    /// the list was requested after `since` and is at most `LISTED_FOR` old. One list answers the questions about all Nodes.
    pub async fn find(
        &self,
        machine: &MachinePath,
        since: Instant,
    ) -> Result<Option<AzureMachine>, Arc<ApiError>> {
        let Some(set) = self.set(&machine.scale_set).await? else { return Ok(None) };
        let listed = self.machines(&set, machine, LISTED_FOR).await?;
        if listed.get(&machine.name).is_some_and(AzureMachine::is_at_work) {
            return Ok(listed.get(&machine.name).cloned());
        }
        let listed = self.machines(&set, machine, LISTED_FOR.min(since.elapsed())).await?;
        Ok(listed.get(&machine.name).cloned())
    }

    /// The machine of a bootstrap request, with its private addresses; `None` if no list has it. The lists may be some seconds old.
    pub async fn find_claimed(
        &self,
        machine: &MachinePath,
    ) -> Result<Option<(AzureMachine, Vec<IpAddr>)>, Arc<ApiError>> {
        let Some(set) = self.set(&machine.scale_set).await? else { return Ok(None) };
        let last = set.machines.cached(NAMESAKES_FOR).await.map_or(0, |last| last.len());
        let pages = u32::try_from(last / PAGE).unwrap_or(u32::MAX).saturating_add(1);
        let longest = CLAIMED_FOR.saturating_mul(pages);
        let listed = self.machines(&set, machine, longest).await?;
        let Some(found) = listed.get(&machine.name).cloned() else { return Ok(None) };
        let addresses = self.addresses(&set, machine, longest).await?;
        Ok(Some((found, addresses.get(&machine.name).cloned().unwrap_or_default())))
    }

    /// Whether the cached lists have a second machine of the cluster with the name `node`. Makes no request.
    pub async fn has_namesake(&self, node: &str, machine: &MachinePath) -> bool {
        let sets: Vec<Arc<ScaleSet>> = self.0.sets.lock().values().cloned().collect();
        let is_namesake = |other: &AzureMachine| {
            let is_of_another = matches!(other.identify(self.cluster()), Err(Refusal::OtherCluster { .. }));
            other.path != *machine && other.node_name() == node && !is_of_another
        };
        for set in sets {
            let known = set.machines.cached(NAMESAKES_FOR).await;
            if known.is_some_and(|known| known.values().any(is_namesake)) {
                return true;
            }
        }
        false
    }

    /// The scale set with this name; `None` if the resource group lacks the scale set, or if the name does not end in the cluster's name.
    async fn set(&self, name: &SetName) -> Result<Option<Arc<ScaleSet>>, Arc<ApiError>> {
        let Some(name) = name else {
            return Ok(Some(self.0.sets.lock().entry(None).or_default().clone()));
        };
        for longest in SETS_FOR {
            let arm = self.0.arm.clone();
            let ask = move || async move {
                let names = arm.scale_sets().await?;
                Ok(names.into_iter().map(|name| name.to_ascii_lowercase()).collect())
            };
            let names = self.0.names.get(longest, ask).await?;
            let mut sets = self.0.sets.lock();
            let is_there = |known: &SetName| known.as_ref().is_none_or(|known| names.contains(known));
            sets.retain(|known, _| is_there(known));
            self.0.addresses.lock().retain(|known, _| is_there(known));
            if names.contains(name) && self.cluster().is_name_of_own(name) {
                return Ok(Some(sets.entry(Some(name.to_owned())).or_default().clone()));
            }
        }
        Ok(None)
    }

    async fn machines(
        &self,
        set: &ScaleSet,
        machine: &MachinePath,
        longest: Duration,
    ) -> Result<Arc<Machines>, Arc<ApiError>> {
        let (arm, name) = (self.0.arm.clone(), machine.scale_set.clone());
        let ask = move || async move { or_none(arm.machines(name.as_deref()).await) };
        set.machines.get(longest, ask).await
    }

    async fn addresses(
        &self,
        set: &ScaleSet,
        machine: &MachinePath,
        longest: Duration,
    ) -> Result<Arc<Addresses>, Arc<ApiError>> {
        let (arm, name, known) = (self.0.arm.clone(), machine.scale_set.clone(), self.0.addresses.clone());
        let ask = move || async move {
            let addresses = or_none(arm.addresses(name.as_deref()).await)?;
            known.lock().insert(name, addresses.values().flatten().copied().collect());
            Ok(addresses)
        };
        set.addresses.get(longest, ask).await
    }
}

/// Treats 404 Not Found as an empty list, because a scale set may be deleted between two requests.
fn or_none<T: Default>(asked: Result<T, ApiError>) -> Result<T, ApiError> {
    match asked {
        Err(error) if error.is_absent() => Ok(T::default()),
        asked => asked,
    }
}

impl OwnAddresses for ScaleSets {
    fn has_address(&self, address: IpAddr) -> bool {
        self.0.addresses.lock().values().any(|addresses| addresses.contains(&address))
    }
}

#[cfg(test)]
mod tests;
