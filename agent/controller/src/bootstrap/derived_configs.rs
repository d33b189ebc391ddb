//! Derives the configuration of a group when a machine asks for it, if kOps writes none. The source is the cluster spec
//! in the store.
//!
//! Upstream's kops-controller builds the configuration for each request, with all of kOps in its process
//! (`getNodeConfig` in `cmd/kops-controller/pkg/server/node_config.go`). Here, machines of a group that start together
//! share one derivation (singleflight). A derivation that outlasts a machine's timeout is ready at the machine's retry.
//! Hashes of downloads are cached until this process ends, even if a derivation fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kops_agent_cloud::verify::{Answer, Refusal};
use kops_agent_plan::derive::KnownHashes;
use kops_agent_process::output::error_text;
use kops_agent_source::asset_hashes::HashSource;
use kops_agent_source::failure::kind_of;
use kops_agent_source::{Derivation, cluster_files};
use kops_agent_spec::InstanceGroupRole;
use kops_agent_spec::failure::{Failing, Failure, Kind};
use kops_agent_store::Store;
use parking_lot::Mutex as StdMutex;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout};

/// The reason of a refusal by [`no_node_config`].
pub(super) const NO_NODE_CONFIG: &str = "NoNodeConfig";
/// How many derivations may query the publishers of downloads for hashes at the same time.
const AT_ONCE: usize = 2;

/// The timeouts of a derivation, and its TTL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// How long a machine's request waits for a derivation.
    pub(super) waited_for: Duration,
    /// The timeout of each step of a derivation: reading the store, and querying the publishers of downloads. The timeout also ends a
    /// derivation for which no machine waits.
    pub(super) done_within: Duration,
    /// The TTL of a finished derivation, successful or failed.
    pub(super) good_for: Duration,
}

pub(super) struct DerivedConfigs {
    store: Arc<Store>,
    config_base: String,
    limits: Limits,
    turns: Arc<Semaphore>,
    /// The groups by group name. Only a verified machine adds its group.
    groups: StdMutex<BTreeMap<String, Arc<Group>>>,
}

#[derive(Default)]
struct Group {
    /// The last finished derivation and its time. The lock is held while a derivation runs.
    last: Arc<Mutex<Option<(Instant, Outcome)>>>,
    /// Why the last derivation failed; empty if it succeeded.
    problem: Arc<StdMutex<String>>,
    /// The hashes that publishers reported for their downloads, by the download's URL.
    hashes: Arc<StdMutex<BTreeMap<String, String>>>,
}

/// The derived configuration, or why the derivation failed.
type Outcome = Result<String, Refusal>;

impl DerivedConfigs {
    pub(super) fn new(store: Arc<Store>, config_base: &str, limits: Limits) -> DerivedConfigs {
        DerivedConfigs {
            store,
            config_base: config_base.to_owned(),
            limits,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            groups: StdMutex::default(),
        }
    }

    /// Returns the configuration of a group of workers. The text is exactly the output of `kops-agent config derive`.
    pub(super) async fn of_group(&self, name: &str) -> Outcome {
        let group = self.group(name);
        timeout(self.limits.waited_for, self.derived(name, group.clone())).await.unwrap_or_else(|_| {
            let before = match &*group.problem.lock() {
                problem if problem.is_empty() => String::new(),
                problem => format!("; the previous derivation failed: {problem}"),
            };
            let problem = "the derivation still runs; the machine gets the result when it asks again";
            Err(unavailable(name, &format!("{problem}{before}")))
        })
    }

    /// Returns the last derivation if it is fresh, or else a new derivation. A new derivation is finished even if the machine disconnects.
    async fn derived(&self, name: &str, group: Arc<Group>) -> Outcome {
        let mut last = group.last.clone().lock_owned().await;
        if let Some((at, outcome)) = &*last
            && at.elapsed() < self.limits.good_for
        {
            return outcome.clone();
        }
        let work = Work {
            store: self.store.clone(),
            base: self.config_base.clone(),
            name: name.to_owned(),
            within: self.limits.done_within,
            turns: self.turns.clone(),
            hashes: group.hashes.clone(),
        };
        let deriving = tokio::spawn(async move {
            let outcome = work.outcome().await;
            let problem = outcome.as_ref().err().map_or_else(String::new, |refusal| refusal.message.clone());
            let before = std::mem::replace(&mut *group.problem.lock(), problem.clone());
            if !problem.is_empty() && problem != before {
                // Log the problem here, because the machine may have disconnected and may never receive the answer.
                log::warn!("no machine of the group {} gets its configuration: {problem}", work.name);
            }
            *last = Some((Instant::now(), outcome.clone()));
            outcome
        });
        deriving.await.unwrap_or_else(|error| Err(unavailable(name, &error.to_string())))
    }

    fn group(&self, name: &str) -> Arc<Group> {
        self.groups.lock().entry(name.to_owned()).or_default().clone()
    }
}

struct Work {
    store: Arc<Store>,
    base: String,
    name: String,
    within: Duration,
    turns: Arc<Semaphore>,
    hashes: Arc<StdMutex<BTreeMap<String, String>>>,
}

impl Work {
    /// Derives the configuration. If only a change of the store can fix an error, returns the refusal [`no_node_config`]. After any other
    /// error, which may be temporary, the refusal says that the configuration is unavailable.
    async fn outcome(&self) -> Outcome {
        self.derive().await.map_err(|error| match is_of_spec(&error) {
            true => no_node_config(error_text(&error)),
            false => unavailable(&self.name, &error_text(&error)),
        })
    }

    async fn derive(&self) -> Result<String> {
        let reading = cluster_files::read(&self.store, &self.base, &self.name);
        let files = timeout(self.within, reading).await.unwrap_or_else(|_| Err(late(self.within)))?;
        let role = files.group.spec.role;
        if role != InstanceGroupRole::Node {
            return Err(Failure::new(Kind::ControlPlaneSettings, format!(
                "the instance group {} has the role {role}, but this server derives configurations only for the role Node",
                self.name
            ))
            .into());
        }
        // A denied file may exist, so a derivation without it could be wrong.
        if let Some(denied) = files.denied.first() {
            return Err(Failure::new(denied.kind(), denied.to_string()).into());
        }
        if let Some((id, denied)) = files.denied_keysets.first_key_value() {
            let problem = format!("the keyset {id} cannot be read: {denied}");
            return Err(Failure::new(Kind::StoreForbidden, problem).into());
        }
        let mut derivation = Derivation::of_group(files);
        self.learn_hashes(&mut derivation).await.with_context(|| {
            format!(
                "reading the hashes of downloads (if no server has these hashes, put the output of \
                 `kops-agent config derive --instance-group {} --asset-hashes FILE` into the store as \
                 igconfig/node/{}/nodeupconfig.yaml)",
                self.name, self.name
            )
        })?;
        Ok(derivation.derive().whole()?)
    }

    /// Queries the hashes that are not cached. Caches each received hash, even if other hashes are missing.
    async fn learn_hashes(&self, derivation: &mut Derivation) -> Result<()> {
        let remembered = HashSource::offline_with(self.hashes.lock().clone());
        derivation.learn_hashes(KnownHashes::default(), &remembered, None, &self.store).await?;
        if derivation.derive().unhashed().is_empty() {
            return Ok(());
        }
        let _turn = self.turns.acquire().await?;
        let publishers = HashSource::publishers(BTreeMap::new());
        let asking = derivation.learn_hashes(KnownHashes::default(), &publishers, None, &self.store);
        let asked = timeout(self.within, asking).await;
        *self.hashes.lock() = derivation.known_hashes();
        asked.unwrap_or_else(|_| {
            let problem =
                format!("the servers with the SHA-256 of downloads do not answer within {:.0?}", self.within);
            Err(Failure::new(Kind::HashesUnknown, problem).into())
        })
    }
}

/// The error for a store that takes longer than `within`.
pub(super) fn late(within: Duration) -> anyhow::Error {
    Failure::new(Kind::StoreUnreachable, format!("the store does not answer within {within:.0?}")).into()
}

/// The refusal of a machine whose configuration cannot be built until the store changes.
pub(super) fn no_node_config(problem: String) -> Refusal {
    Refusal {
        answer: Answer::BadRequest,
        reason: NO_NODE_CONFIG,
        message: format!("failed to build node config: {problem}"),
    }
}

fn unavailable(group: &str, problem: &str) -> Refusal {
    let problem = format!("the configuration of the group {group} cannot be derived yet: {problem}");
    Refusal::unavailable("NodeConfigUnavailable", problem)
}

/// Whether only a change of the spec or of the configuration can fix an error. A missing hash is no such error, because servers sometimes
/// withhold hashes that they have.
fn is_of_spec(error: &anyhow::Error) -> bool {
    kind_of(error).is_configuration()
}
