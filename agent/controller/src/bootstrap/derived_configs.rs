//! The configuration of a group that kOps writes none for: derived from the cluster spec, as the store has it
//! now, when a machine asks for it.
//!
//! Upstream's kops-controller builds it anew for each request, with all of kOps in its process (`getNodeConfig` in
//! `cmd/kops-controller/pkg/server/node_config.go`). Here machines of a group that start together share one derivation
//! (singleflight), and one that takes longer than a machine's timeout is there at its retry. What publishers have told of
//! downloads is remembered for as long as this process lives, whatever else went wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use kops_agent_cloud::verify::Refusal;
use kops_agent_derivation::asset_hashes::HashSource;
use kops_agent_derivation::{Derivation, Incomplete, cluster_files};
use kops_agent_plan::derive::KnownHashes;
use kops_agent_process::exit::WrongConfiguration;
use kops_agent_process::output::error_text;
use kops_agent_spec::{InstanceGroupRole, SpecError};
use kops_agent_store::{Store, StoreError};
use parking_lot::Mutex as StdMutex;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout};

use super::no_node_config::no_node_config;

/// Groups at a time whose publishers are asked.
const AT_ONCE: usize = 2;

/// The timeouts of a derivation, and how long it is good for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// How long a machine waits for one.
    pub(super) waited_for: Duration,
    /// How long the store may take for one, and then the publishers, whether or not a machine waits.
    pub(super) done_within: Duration,
    /// The TTL of one that has ended, well or not.
    pub(super) good_for: Duration,
}

pub(super) struct DerivedConfigs {
    store: Arc<Store>,
    config_base: String,
    limits: Limits,
    turns: Arc<Semaphore>,
    /// By name: those that machines were in that have proven what they are.
    groups: StdMutex<BTreeMap<String, Arc<Group>>>,
}

#[derive(Default)]
struct Group {
    /// The last derivation that has ended, and when. It is locked while one is under way.
    last: Arc<Mutex<Option<(Instant, Outcome)>>>,
    /// Why the last one failed; empty if it did not.
    problem: Arc<StdMutex<String>>,
    /// What publishers have told of its downloads, by URL.
    hashes: Arc<StdMutex<BTreeMap<String, String>>>,
}

/// The configuration, or why there is none.
type Outcome = Result<String, Refusal>;

impl DerivedConfigs {
    /// Derives from what is in the cluster's folder.
    pub(super) fn of(store: Arc<Store>, config_base: &str, limits: Limits) -> DerivedConfigs {
        DerivedConfigs {
            store,
            config_base: config_base.to_owned(),
            limits,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            groups: StdMutex::default(),
        }
    }

    /// The configuration of a group of workers, with the bytes that `kops-agent config derive` prints.
    ///
    /// # Errors
    /// The cluster spec gives none, or the store or a publisher does not tell yet.
    pub(super) async fn of_group(&self, name: &str) -> Outcome {
        let group = self.group(name);
        timeout(self.limits.waited_for, self.derived(name, group.clone())).await.unwrap_or_else(|_| {
            let before = match &*group.problem.lock() {
                problem if problem.is_empty() => String::new(),
                problem => format!("; it failed before: {problem}"),
            };
            let problem = "it is still being derived, and the machine finds it when it comes again";
            Err(unavailable(name, &format!("{problem}{before}")))
        })
    }

    /// The last one, while it is good; else a new one, which goes on to its end though the machine may go.
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
                // No request may be left that this could be the answer to.
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
    /// What is wrong for as long as the store has what it has is the machine's answer; all else may pass.
    async fn outcome(&self) -> Outcome {
        self.derive().await.map_err(|error| match is_of_spec(&error) {
            true => no_node_config(error_text(&error)),
            false => unavailable(&self.name, &error_text(&error)),
        })
    }

    async fn derive(&self) -> Result<String> {
        let reading = cluster_files::read(&self.store, &self.base, &self.name);
        let files = timeout(self.within, reading)
            .await
            .unwrap_or_else(|_| Err(anyhow!("the store takes longer than {:.0?}", self.within)))?;
        let role = files.group.spec.role;
        if role != InstanceGroupRole::Node {
            return Err(WrongConfiguration(format!(
                "the instance group {} has the role {role}, and only workers get their configuration from this server",
                self.name
            ))
            .into());
        }
        // What may not be read may be there.
        if let Some(denied) = files.denied.first() {
            return Err(anyhow!("{denied}"));
        }
        if let Some((id, denied)) = files.denied_keysets.first_key_value() {
            return Err(anyhow!("the keyset {id} cannot be read: {denied}"));
        }
        let mut derivation = Derivation::of_group(files);
        self.learn_hashes(&mut derivation).await.with_context(|| {
            format!(
                "where no server can tell: put what `kops-agent config derive --instance-group {} --asset-hashes FILE` prints at \
                 igconfig/node/{}/nodeupconfig.yaml of the store",
                self.name, self.name
            )
        })?;
        Ok(derivation.derive().whole()?)
    }

    /// Learns what is not remembered, and remembers what was told, though not all was.
    async fn learn_hashes(&self, derivation: &mut Derivation) -> Result<()> {
        let remembered = HashSource::known_and(self.hashes.lock().clone());
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
            Err(anyhow!(
                "the servers that tell the SHA-256 of downloads take longer than {:.0?}",
                self.within
            ))
        })
    }
}

fn unavailable(group: &str, problem: &str) -> Refusal {
    let problem = format!("the configuration of the group {group} cannot be derived yet: {problem}");
    Refusal::unavailable("NodeConfigUnavailable", problem)
}

/// A hash that no server tells is none of it: servers are known to hold back what they have.
fn is_of_spec(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(Incomplete::Wrong(_)))
            || cause.is::<SpecError>()
            || cause.is::<WrongConfiguration>()
            || cause.downcast_ref::<StoreError>().is_some_and(StoreError::is_configuration)
    })
}
