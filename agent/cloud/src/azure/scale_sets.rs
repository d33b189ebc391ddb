//! Machines in the resource group of a cluster, in scale sets or alone, for the controller of nodes and the bootstrap server.
//!
//! Scale sets are asked, not machines: one list of a resource group's scale sets, one list of each one's machines for all questions
//! about them, and one of their addresses. Upstream gets each machine and each of its network interfaces, which costs two requests
//! a node. Nothing is asked of, or remembered for, a scale set that is made up. One more list has all machines that are in no scale set.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kops_agent_plan::identity::Refusal;
use kops_agent_plan::identity::azure::{AzureCluster, AzureMachine, MachinePath};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::arm::Arm;
use crate::api::ApiError;
use crate::singleflight::Singleflight;
use crate::verify::OwnAddresses;

/// How old the list of scale sets may be, and how old where it does not have one that is asked for.
const SETS_FOR: [Duration; 2] = [Duration::from_secs(10 * 60), Duration::from_secs(30)];
/// How old a list of machines may be that has the machine at work; and one that does not, where it was asked for after the Node was
/// there.
const LISTED_FOR: Duration = Duration::from_secs(10);
/// The same where a request that a machine has proven to be its own asks, for each hundred machines that the list has. A machine
/// is in the list before it starts, and one that asks too early retries.
const CLAIMED_FOR: Duration = Duration::from_secs(5);
/// Machines on a page of a list, about.
const PAGE: usize = 100;
/// How old a list may be that tells whether another machine has a Node's name.
const NAMESAKES_FOR: Duration = Duration::from_secs(60);

type Machines = BTreeMap<String, AzureMachine>;
type Addresses = BTreeMap<String, Vec<IpAddr>>;
/// A scale set, in small letters; `None` stands for the machines outside of scale sets.
type SetName = Option<String>;

/// The scale sets of a cluster. Clones ask together.
#[derive(Clone, Debug)]
pub struct ScaleSets(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    arm: Arc<Arm>,
    cluster: AzureCluster,
    /// In small letters.
    names: Singleflight<BTreeSet<String>, ApiError>,
    sets: Mutex<BTreeMap<SetName, Arc<ScaleSet>>>,
    /// The addresses of all machines of each scale set when they were last listed.
    addresses: Arc<Mutex<BTreeMap<SetName, BTreeSet<IpAddr>>>>,
}

#[derive(Debug, Default)]
struct ScaleSet {
    machines: Singleflight<Machines, ApiError>,
    addresses: Singleflight<Addresses, ApiError>,
}

impl ScaleSets {
    /// Asks Azure Resource Manager for the scale sets of this cluster.
    pub fn of(arm: Arm, cluster: AzureCluster) -> ScaleSets {
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

    /// The machine of a Node; `None` if no list has it. `since` is when the Node was there already: a list that was asked for
    /// later, and no longer than some seconds ago, decides that its machine is not there, however many Nodes want to know.
    ///
    /// # Errors
    /// If that cannot be asked.
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

    /// The machine that asks to become a node, as of some seconds ago, with its private addresses; `None` if no list has it.
    ///
    /// # Errors
    /// If that cannot be asked.
    pub async fn find_claimed(
        &self,
        machine: &MachinePath,
    ) -> Result<Option<(AzureMachine, Vec<IpAddr>)>, Arc<ApiError>> {
        let Some(set) = self.set(&machine.scale_set).await? else { return Ok(None) };
        let last = set.machines.known(NAMESAKES_FOR).await.map_or(0, |last| last.len());
        let pages = u32::try_from(last / PAGE).unwrap_or(u32::MAX).saturating_add(1);
        let longest = CLAIMED_FOR.saturating_mul(pages);
        let listed = self.machines(&set, machine, longest).await?;
        let Some(found) = listed.get(&machine.name).cloned() else { return Ok(None) };
        let addresses = self.addresses(&set, machine, longest).await?;
        Ok(Some((found, addresses.get(&machine.name).cloned().unwrap_or_default())))
    }

    /// Whether another machine of the cluster is known by a Node's name. Nothing is asked for that.
    pub async fn has_namesake(&self, node: &str, machine: &MachinePath) -> bool {
        let sets: Vec<Arc<ScaleSet>> = self.0.sets.lock().values().cloned().collect();
        let is_namesake = |other: &AzureMachine| {
            let is_of_another = matches!(other.identify(self.cluster()), Err(Refusal::OtherCluster { .. }));
            other.path != *machine && other.node_name() == node && !is_of_another
        };
        for set in sets {
            let known = set.machines.known(NAMESAKES_FOR).await;
            if known.is_some_and(|known| known.values().any(is_namesake)) {
                return true;
            }
        }
        false
    }

    /// The scale set of a name; `None` if the resource group has none that is called as the cluster's are.
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

/// A scale set that is gone since scale sets were listed has nothing.
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
