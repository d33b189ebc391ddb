//! Channels and manifests, read from the state store.

use anyhow::{Context, Result};
use kops_agent_plan::addons::manifest::{self, Object};
use kops_agent_plan::addons::{Addon, Channel, Menu, ServerVersion};
use kops_agent_store::Store;
use kube::Client;

use super::api_error::answer;

/// The version of Kubernetes that channels are read for.
///
/// # Errors
/// The API server does not answer, or says none.
pub async fn server_version(client: &Client) -> Result<ServerVersion> {
    let said = answer(client.apiserver_version()).await.context("asking the API server for its version")?;
    ServerVersion::parse(&said.git_version).with_context(|| {
        format!("the API server says that its version is {:?}, which is none", said.git_version)
    })
}

/// What a channel has for a version of Kubernetes.
///
/// # Errors
/// It cannot be read, or is none.
pub async fn menu(store: &Store, url: &str, version: ServerVersion) -> Result<Menu> {
    let text = store.read(url).await.with_context(|| format!("reading the channel {url}"))?;
    Ok(Channel::parse(&text, url)?.menu(version))
}

/// The objects of an add-on's manifest.
///
/// # Errors
/// It cannot be read, is not the one that the channel means, or holds what is no object.
pub async fn manifest(store: &Store, addon: &Addon) -> Result<Vec<Object>> {
    addon.check()?;
    let url = addon.manifest_url()?;
    let text = store.read(&url).await.with_context(|| format!("reading the manifest {url}"))?;
    addon.check_manifest(&text, &url)?;
    Ok(manifest::objects(&text, &url)?)
}
