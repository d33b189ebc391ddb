//! Channels and manifests, read from the state store, or from web servers that an operator names.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use kops_agent_plan::addons::manifest::{self, Object};
use kops_agent_plan::addons::{Addon, Channel, Menu, ServerVersion};
use kops_agent_store::{Store, StoreError};
use kube::Client;

use crate::api_error::answer;

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
    let text = read(store, url).await.with_context(|| format!("reading the channel {url}"))?;
    Ok(Channel::parse(&text, url)?.menu(version))
}

/// The objects of an add-on's manifest.
///
/// # Errors
/// It cannot be read, is not the one that the channel means, or holds what is no object.
pub async fn manifest(store: &Store, addon: &Addon) -> Result<Vec<Object>> {
    addon.check()?;
    let url = addon.manifest_url()?;
    let text = read(store, &url).await.with_context(|| format!("reading the manifest {url}"))?;
    addon.check_manifest(&text, &url)?;
    Ok(manifest::objects(&text, &url)?)
}

/// The URLs that were warned of, so that each is warned of once and not in every round.
static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

async fn read(store: &Store, url: &str) -> Result<Vec<u8>, StoreError> {
    let is_new = || TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(url.to_owned());
    if url.starts_with("http://") && is_new() {
        log::warn!("{url} is read without TLS: any hop on the way can change what is applied");
    }
    store.read(url).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_tests::test_server::{TestServer, text};

    use super::*;

    const CHANNEL: &str = "kind: Addons\nspec:\n  addons:\n  - {name: dashboard, manifest: v1.yaml}\n";
    const MANIFEST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dashboard}\n";

    /// As upstream's `kops-channels` reads them (`ReadFile` in util/pkg/vfs/context.go).
    #[tokio::test]
    async fn a_channel_and_its_manifest_may_be_on_a_web_server() {
        let server = TestServer::start(|request| async move {
            Ok(match request.uri().path() {
                "/dashboard/channel.yaml" => text(200, CHANNEL),
                "/dashboard/v1.yaml" => text(200, MANIFEST),
                _ => text(404, ""),
            })
        })
        .await;
        let store = Store::new(&[]).unwrap().reading_in_clear();
        let version = ServerVersion::parse("v1.36.0").unwrap();
        let channel = format!("{}/dashboard/channel.yaml", server.url);
        let menu = menu(&store, &channel, version).await.unwrap();
        let objects = manifest(&store, &menu.addons[0]).await.unwrap();
        assert_eq!(objects.len(), 1);

        let missing = super::menu(&store, &format!("{}/none.yaml", server.url), version).await.unwrap_err();
        assert!(format!("{missing:#}").contains("does not exist"), "{missing:#}");
    }
}
