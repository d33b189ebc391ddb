//! The machines that the instance groups want. The leading controller reads the saved specs in the state store and publishes
//! the parts that `kops-agent fleet plan` compares, because operators of the API server need no right to the store.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};

use kops_agent_cluster::fleet::{WANTED_MACHINES, WANTED_MACHINES_KEY, WantedMachine, WantedMachines};
use kops_agent_cluster::pacing::NAMESPACE;
use kops_agent_kube::api_error::{ApiError, answer};
use kops_agent_kube::lease::Leadership;
use kops_agent_kube::own_node::FIELD_MANAGER;
use kops_agent_process::output::error_text;
use kops_agent_spec::failure::{Failing as _, Failure, Kind};
use kops_agent_spec::{InstanceGroup, timestamp};
use kops_agent_store::Store;

use crate::groups::files::{BEHIND_INSTANCE_GROUPS, INSTANCE_GROUPS, group_of};

/// The pause between two reads of the specs.
const PAUSE: Duration = Duration::from_secs(60);
/// The interval at which unchanged specs are published again. Readers ignore a publication that is hours old.
const PUBLISHED_AT_LEAST_EVERY: Duration = Duration::from_secs(30 * 60);

/// Publishes the parts of the instance groups' specs that are compared with machines.
pub(crate) struct Publisher {
    api: Api<ConfigMap>,
    store: Arc<Store>,
    config_base: String,
    leadership: Leadership,
}

/// The last publication: the version of each file, and the time.
type Published = (BTreeMap<String, String>, Instant);

impl Publisher {
    /// `config_base` is the cluster's folder in the store.
    pub(crate) fn new(
        client: Client,
        store: Arc<Store>,
        config_base: &str,
        leadership: Leadership,
    ) -> Publisher {
        let config_base = config_base.trim_end_matches('/').to_owned();
        Publisher { api: Api::namespaced(client, NAMESPACE), store, config_base, leadership }
    }

    /// Publishes the specs after each change, forever. Retries after a failure. Logs each problem once.
    pub(crate) async fn run(&self) -> Infallible {
        let (mut published, mut said) = (None, String::new());
        loop {
            match self.step(&mut published).await {
                Ok(()) => said.clear(),
                Err(problem) => {
                    if problem != said {
                        log::warn!("machines cannot be compared with their groups: {problem}; trying again");
                    }
                    said = problem;
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Publishes the specs if a spec has changed, or if the last publication is older than [`PUBLISHED_AT_LEAST_EVERY`].
    async fn step(&self, published: &mut Option<Published>) -> Result<(), String> {
        let versions = self.store.versions(&self.config_base, INSTANCE_GROUPS, BEHIND_INSTANCE_GROUPS).await;
        let versions = versions.map_err(|error| error_text(&error.into()))?;
        let is_published =
            |(before, at): &Published| *before == versions && at.elapsed() < PUBLISHED_AT_LEAST_EVERY;
        if published.as_ref().is_some_and(is_published) {
            return Ok(());
        }
        let (mut groups, mut unreadable) = (BTreeMap::new(), None);
        for file in versions.keys() {
            let Some(name) = group_of(file) else { continue };
            match self.group(file).await {
                Ok(wanted) => drop(groups.insert(name.to_owned(), wanted)),
                // If a group's spec cannot be read, only this group is not published, and `fleet plan` does not compare its machines.
                Err(problem) => unreadable = Some(problem),
            }
        }
        // Another process may lead now.
        if self.leadership.remaining().is_some() {
            self.publish(groups).await?;
            *published = unreadable.is_none().then(|| (versions, Instant::now()));
        }
        unreadable.map_or(Ok(()), Err)
    }

    async fn group(&self, file: &str) -> Result<WantedMachine, String> {
        let url = format!("{}/{file}", self.config_base);
        let text = self.store.read(&url).await.map_err(|error| error_text(&error.into()))?;
        let group = InstanceGroup::parse(&text, &url).map_err(|error| error_text(&error.into()))?;
        Ok(WantedMachine::from_group(&group.spec))
    }

    async fn publish(&self, groups: BTreeMap<String, WantedMachine>) -> Result<(), String> {
        let wanted = WantedMachines::new(&timestamp(OffsetDateTime::now_utc()), groups);
        let text = serde_json::to_string(&wanted).map_err(|error| error.to_string())?;
        let patch = Patch::Merge(json!({"data": {WANTED_MACHINES_KEY: text}}));
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        match answer(self.api.patch(WANTED_MACHINES, &parameters, &patch)).await {
            Ok(_) => Ok(()),
            Err(error) => Err(format!(
                "cannot write the ConfigMap {NAMESPACE}/{WANTED_MACHINES}: {error}; apply \
                 packaging/kubernetes/rbac.yaml, which creates the ConfigMap and grants the right to write it"
            )),
        }
    }
}

/// Reads the published machines. Fails if no controller has published them recently.
pub async fn read(client: Client, now: OffsetDateTime) -> Result<WantedMachines, Failure> {
    let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let found: Result<Option<ConfigMap>, ApiError> = answer(api.get_opt(WANTED_MACHINES)).await;
    let found = found.map_err(|error| {
        let problem = format!("the ConfigMap {NAMESPACE}/{WANTED_MACHINES} cannot be read: {error}");
        Failure::new(error.kind(), problem)
    })?;
    let text = found.and_then(|map| map.data).and_then(|mut data| data.remove(WANTED_MACHINES_KEY));
    let none = || {
        let problem = format!(
            "no controller has written the specs of the instance groups into {NAMESPACE}/{WANTED_MACHINES} yet"
        );
        Failure::new(Kind::Other, problem)
    };
    let read = WantedMachines::read(&text.ok_or_else(none)?, now);
    read.map_err(|invalid| Failure::new(Kind::Other, invalid))
}
