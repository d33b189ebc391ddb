//! Reads, applies, lists and deletes objects of any kind on the API server. `tell` logs deletions and field takeovers, and creates
//! an Event for each.

use kops_agent_cluster::addons::FIELD_MANAGER;
use kops_agent_cluster::addons::pause::is_paused;
use kops_agent_cluster::addons::prune::Listed;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use serde_json::Value;

use super::resources::{Resource, Resources};
use kops_agent_kube::api_error::{ApiError, answer};
use kops_agent_kube::events::{Events, Reason};
use kops_agent_kube::list_pages;

/// The component that the Events name as their source.
pub const COMPONENT: &str = "kops-agent-addons";

pub struct Objects {
    client: Client,
    pub events: Events,
    pub resources: Resources,
}

/// The mode of a server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apply {
    /// The API server rejects the apply if another manager owns one of the applied fields.
    Polite,
    /// The apply takes over fields that other managers own.
    Forced,
    /// Like `Forced`, but the API server changes nothing and returns the result.
    DryRun,
}

impl Objects {
    pub fn new(client: Client) -> Objects {
        let events = Events::of_component(client.clone(), COMPONENT);
        Objects { resources: Resources::new(client.clone()), events, client }
    }

    /// Logs a change of objects and creates its Event. Call it right after the change, because the rest of the add-on may still fail.
    pub async fn tell(&self, reason: Reason, message: &str) {
        log::info!("{message}");
        self.events.tell_of_addons(reason, message).await;
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the object; `None` if the object or its kind does not exist.
    pub async fn get(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, ApiError> {
        match answer(self.api(resource, namespace).get(name)).await {
            Ok(object) => value(&object).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Applies an object, and returns the object that the API server has after the apply.
    pub async fn apply(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        object: &Value,
        how: Apply,
    ) -> Result<Value, ApiError> {
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            force: how != Apply::Polite,
            dry_run: how == Apply::DryRun,
            ..PatchParams::default()
        };
        let api = self.api(resource, namespace);
        value(&answer(api.patch(name, &parameters, &Patch::Apply(object))).await?)
    }

    pub async fn merge(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<(), ApiError> {
        let api = self.api(resource, namespace);
        answer(api.patch(name, &PatchParams::default(), &Patch::Merge(patch))).await.map(drop)
    }

    /// Creates an object. If the object exists, it stays unchanged.
    pub async fn create(&self, resource: &Resource, namespace: &str, object: Value) -> Result<(), ApiError> {
        match self.post(resource, namespace, object, false).await {
            Err(error) if !error.is_already_there() => Err(error),
            _ => Ok(()),
        }
    }

    /// Asks the API server in a dry run whether it would create the object.
    pub async fn create_dry_run(
        &self,
        resource: &Resource,
        namespace: &str,
        object: Value,
    ) -> Result<(), ApiError> {
        self.post(resource, namespace, object, true).await
    }

    async fn post(
        &self,
        resource: &Resource,
        namespace: &str,
        object: Value,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let object: DynamicObject =
            serde_json::from_value(object).map_err(|error| ApiError::Unanswered(error.to_string()))?;
        let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), dry_run };
        answer(self.api(resource, namespace).create(&parameters, &object)).await.map(drop)
    }

    /// Lists the objects of a kind that match the selectors. An empty `namespace` means all namespaces.
    pub async fn list(
        &self,
        resource: &Resource,
        namespace: &str,
        labels: &str,
        fields: &str,
    ) -> Result<Vec<Listed>, ApiError> {
        let api = &self.api(resource, namespace);
        let selected = ListParams::default().labels(labels).fields(fields);
        let ask = |page| async move { answer(api.list_metadata(&page)).await };
        let listed = |object: PartialObjectMeta<DynamicObject>| {
            let owners = object.metadata.owner_references.unwrap_or_default();
            Listed {
                namespace: object.metadata.namespace.unwrap_or_default(),
                name: object.metadata.name.unwrap_or_default(),
                is_paused: object.metadata.annotations.is_some_and(|annotations| is_paused(&annotations)),
                is_owned: owners.iter().any(|owner| owner.controller == Some(true)),
            }
        };
        list_pages::all(selected, ask, listed).await
    }

    /// Deletes an object. Not found counts as success.
    pub async fn delete(&self, resource: &Resource, namespace: &str, name: &str) -> Result<(), ApiError> {
        match answer(self.api(resource, namespace).delete(name, &DeleteParams::default())).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    fn api(&self, resource: &Resource, namespace: &str) -> Api<DynamicObject> {
        match namespace.is_empty() {
            true => Api::all_with(self.client.clone(), &resource.api),
            false => Api::namespaced_with(self.client.clone(), namespace, &resource.api),
        }
    }
}

fn value(object: &DynamicObject) -> Result<Value, ApiError> {
    serde_json::to_value(object).map_err(|error| ApiError::Unanswered(error.to_string()))
}
