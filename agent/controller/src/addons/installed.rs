//! Reads and writes the annotations of namespaces that record an add-on's version and its pause.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use kops_agent_cluster::addons::pause::paused_addons;
use kops_agent_cluster::addons::{ChannelVersion, annotation, recorded};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use kops_agent_kube::api_error::{ApiError, answer};

#[derive(Debug, Default)]
pub struct Installed {
    pub versions: BTreeMap<(String, String), ChannelVersion>,
    /// The add-ons that a person has paused.
    pub paused: BTreeSet<(String, String)>,
}

#[derive(Debug, Default)]
pub struct OfNamespace {
    pub versions: BTreeMap<String, ChannelVersion>,
    /// The add-ons that a person has paused.
    pub paused: BTreeSet<String>,
}

impl OfNamespace {
    fn read(annotations: Option<BTreeMap<String, String>>) -> OfNamespace {
        let annotations = annotations.unwrap_or_default();
        OfNamespace { versions: recorded(&annotations), paused: paused_addons(&annotations) }
    }
}

/// Reads the installed versions and the paused add-ons of all namespaces.
pub async fn read(client: &Client) -> Result<Installed, ApiError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespaces = answer(namespaces.list_metadata(&ListParams::default())).await?;
    let mut installed = Installed::default();
    for namespace in namespaces.items {
        let name = namespace.metadata.name.unwrap_or_default();
        let OfNamespace { versions, paused } = OfNamespace::read(namespace.metadata.annotations);
        let key = |addon| (name.clone(), addon);
        installed.versions.extend(versions.into_iter().map(|(addon, version)| (key(addon), version)));
        installed.paused.extend(paused.into_iter().map(key));
    }
    Ok(installed)
}

/// Reads the installed versions and the paused add-ons of one namespace. For a missing namespace, the result is empty.
pub async fn of_namespace(client: &Client, namespace: &str) -> Result<OfNamespace, ApiError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let found = answer(namespaces.get_metadata_opt(namespace)).await?;
    Ok(OfNamespace::read(found.and_then(|namespace| namespace.metadata.annotations)))
}

/// Records the version of an add-on in its namespace. If the namespace does not exist, the API server responds with
/// 404.
pub async fn record(
    client: &Client,
    namespace: &str,
    name: &str,
    version: &ChannelVersion,
) -> Result<(), ApiError> {
    annotate(client, namespace, name, json!(version.encode())).await
}

pub async fn forget(client: &Client, namespace: &str, name: &str) -> Result<(), ApiError> {
    annotate(client, namespace, name, Value::Null).await
}

async fn annotate(client: &Client, namespace: &str, name: &str, value: Value) -> Result<(), ApiError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let patch = json!({ "metadata": { "annotations": { annotation(name): value } } });
    answer(namespaces.patch_metadata(namespace, &PatchParams::default(), &Patch::Merge(&patch)))
        .await
        .map(drop)
}
