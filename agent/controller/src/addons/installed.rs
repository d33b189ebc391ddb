//! The versions of add-ons that a cluster has, in the annotations of its namespaces.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use kops_agent_plan::addons::{ChannelVersion, annotation, recorded};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::api_error::{ApiError, answer};

/// Versions by namespace and add-on.
pub type Installed = BTreeMap<(String, String), ChannelVersion>;

/// All that are recorded.
///
/// # Errors
/// The API server refuses it, or does not answer.
pub async fn read(client: &Client) -> Result<Installed, ApiError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespaces = answer(namespaces.list_metadata(&ListParams::default())).await?;
    let versions = namespaces.items.into_iter().flat_map(|namespace| {
        let name = namespace.metadata.name.unwrap_or_default();
        let versions = recorded(&namespace.metadata.annotations.unwrap_or_default());
        versions.into_iter().map(move |(addon, version)| ((name.clone(), addon), version))
    });
    Ok(versions.collect())
}

/// Those that one namespace records, by add-on: none where there is no such namespace.
///
/// # Errors
/// The API server refuses it, or does not answer.
pub async fn of_namespace(
    client: &Client,
    namespace: &str,
) -> Result<BTreeMap<String, ChannelVersion>, ApiError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let found = answer(namespaces.get_metadata_opt(namespace)).await?;
    Ok(recorded(&found.and_then(|namespace| namespace.metadata.annotations).unwrap_or_default()))
}

/// Records the version of an add-on in its namespace.
///
/// # Errors
/// There is no such namespace, the API server refuses it, or does not answer.
pub async fn record(
    client: &Client,
    namespace: &str,
    name: &str,
    version: &ChannelVersion,
) -> Result<(), ApiError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let patch = json!({ "metadata": { "annotations": { annotation(name): version.encode() } } });
    answer(namespaces.patch_metadata(namespace, &PatchParams::default(), &Patch::Merge(&patch)))
        .await
        .map(drop)
}
