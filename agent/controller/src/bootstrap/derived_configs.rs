//! The configuration of a group that kOps writes none for, as on metal: derived from the cluster spec, as the store has it
//! now, when a machine asks for it.
//!
//! Upstream's kops-controller builds it anew for each request, with all of kOps in its process (`getNodeConfig` in
//! `cmd/kops-controller/pkg/server/node_config.go`). Here machines of a group that start together share one derivation, and
//! one that takes longer than a machine waits is there when it comes again. What publishers have told of downloads is
//! remembered for as long as this process lives.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow};
use kops_agent_cloud::singleflight::Singleflight;
use kops_agent_cloud::verify::Refusal;
use kops_agent_derivation::asset_hashes::HashSource;
use kops_agent_derivation::{Derivation, Incomplete, cluster_files};
use kops_agent_plan::derive::KnownHashes;
use kops_agent_process::exit::WrongConfiguration;
use kops_agent_process::output::error_text;
use kops_agent_spec::{InstanceGroupRole, SpecError};
use kops_agent_store::{Store, StoreError};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::grants::no_node_config;

/// Derivations at a time, each of which reads some files of the store and may ask publishers.
const AT_ONCE: usize = 2;

/// The timeouts of a derivation, and how long it is good for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// How long a machine waits for one.
    pub(super) waited_for: Duration,
    /// How long one takes at most, whether or not a machine waits.
    pub(super) done_within: Duration,
    /// The TTL of one, and of what is wrong with the cluster spec.
    pub(super) good_for: Duration,
}

/// Derives.
pub(super) struct DerivedConfigs {
    store: Arc<Store>,
    config_base: String,
    limits: Limits,
    turns: Arc<Semaphore>,
    /// By name: those that machines were in that have proven what they are.
    groups: Mutex<BTreeMap<String, Arc<OfGroup>>>,
}

#[derive(Default)]
struct OfGroup {
    /// The configuration, or what is wrong with what it is derived from; an error passes by itself.
    derived: Singleflight<Result<String, String>, String>,
    /// What publishers have told of its downloads, by URL.
    hashes: Arc<Mutex<BTreeMap<String, String>>>,
}

impl DerivedConfigs {
    /// Derives from what is in the cluster's folder.
    pub(super) fn of(store: Arc<Store>, config_base: &str, limits: Limits) -> DerivedConfigs {
        DerivedConfigs {
            store,
            config_base: config_base.to_owned(),
            limits,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            groups: Mutex::default(),
        }
    }

    /// The configuration of a group of workers, with the bytes that `kops-agent config derive` prints.
    ///
    /// # Errors
    /// The cluster spec gives none, or the store or a publisher does not tell yet.
    pub(super) async fn of_group(&self, name: &str) -> Result<String, Refusal> {
        let unavailable = |problem: &str| {
            let problem = format!("the configuration of the group {name} cannot be derived yet: {problem}");
            Refusal::unavailable("NodeConfigUnavailable", problem)
        };
        let group = self.group(name);
        let (store, turns, within) = (self.store.clone(), self.turns.clone(), self.limits.done_within);
        let (base, hashes, asked) = (self.config_base.clone(), group.hashes.clone(), name.to_owned());
        let derivation = move || async move {
            let deriving = async {
                let _turn = turns.acquire().await?;
                derive(&store, &base, &asked, &hashes).await
            };
            match timeout(within, deriving).await {
                Ok(derived) => outcome(derived),
                Err(_) => Err(format!("it takes longer than {within:.0?}")),
            }
        };
        let waiting = group.derived.get(self.limits.good_for, derivation);
        match timeout(self.limits.waited_for, waiting).await {
            Ok(Ok(derived)) => derived.as_ref().clone().map_err(no_node_config),
            Ok(Err(problem)) => Err(unavailable(&problem)),
            Err(_) => Err(unavailable("it is still being derived; the machine finds it when it comes again")),
        }
    }

    fn group(&self, name: &str) -> Arc<OfGroup> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.entry(name.to_owned()).or_default().clone()
    }
}

/// Whether what was wrong is so for as long as the store has what it has, in which case it is a machine's answer.
fn outcome(derived: Result<String>) -> Result<Result<String, String>, String> {
    match derived {
        Ok(text) => Ok(Ok(text)),
        Err(error) if is_of_spec(&error) => Ok(Err(error_text(&error))),
        Err(error) => Err(error_text(&error)),
    }
}

fn is_of_spec(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<Incomplete>()
            || cause.is::<SpecError>()
            || cause.is::<WrongConfiguration>()
            || cause.downcast_ref::<StoreError>().is_some_and(StoreError::is_configuration)
    })
}

async fn derive(
    store: &Store,
    base: &str,
    group: &str,
    hashes: &Mutex<BTreeMap<String, String>>,
) -> Result<String> {
    let files = cluster_files::read(store, base, group).await?;
    let role = files.group.spec.role;
    if role != InstanceGroupRole::Node {
        return Err(WrongConfiguration(format!(
            "the instance group {group} has the role {role}, and only workers get their configuration from this server"
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
    let remembered = hashes.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut derivation = Derivation::of_group(files);
    derivation.learn_hashes(KnownHashes::default(), &HashSource::publishers(remembered), None, store).await?;
    let derived = derivation.derive();
    // Those of downloads that it no longer has are forgotten.
    let told = KnownHashes::of_config(&derived.config);
    *hashes.lock().unwrap_or_else(PoisonError::into_inner) =
        told.iter().map(|(url, sha256)| (url.to_owned(), sha256.to_owned())).collect();
    Ok(derived.whole()?)
}
