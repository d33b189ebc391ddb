//! Reads channels and manifests from the state store, or from web servers that an operator names.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use kops_agent_cluster::addons::manifest::{self, Object};
use kops_agent_cluster::addons::{
    Addon, Channel, LeftOut, Menu, ServerVersion, cluster_folder, leave_to_last_channel,
};
use kops_agent_source::cluster_files;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::kops_release::{KopsRelease, WrittenBy};
use kops_agent_store::{Store, StoreError};
use kube::Client;
use parking_lot::Mutex;

use kops_agent_kube::api_error::answer;

/// The version of the API server. It decides which entries of a channel apply to the cluster.
pub async fn server_version(client: &Client) -> Result<ServerVersion> {
    let said = answer(client.apiserver_version()).await.context("asking the API server for its version")?;
    ServerVersion::parse(&said.git_version).with_context(|| {
        format!("the API server's version {:?} is not a version of Kubernetes", said.git_version)
    })
}

/// Returns the kOps release whose rules apply to the channels: the release that wrote kOps' own channel. Each call reads the release again,
/// because an upgrade of kOps may have written the store since the last call. Without kOps' own channel, returns the newest release. Fails
/// if the release is older than the oldest supported release.
pub async fn release(store: &Store, channels: &[String]) -> Result<KopsRelease> {
    let Some(folder) = channels.iter().find_map(|channel| cluster_folder(channel)) else {
        return Ok(KopsRelease::NEWEST);
    };
    let version = cluster_files::kops_version(store, folder)
        .await
        .with_context(|| format!("reading which kOps release wrote {folder}"))?;
    let written_by = WrittenBy::of_store(version.as_deref());
    Ok(written_by
        .map_err(|problem| Failure::new(Kind::FileUnreadable, format!("{folder}: {problem}")))?
        .release)
}

/// Reads the channel's add-ons for a version of Kubernetes, by the rules of a kOps release.
pub async fn menu(store: &Store, url: &str, version: ServerVersion, release: KopsRelease) -> Result<Menu> {
    let text = read(store, url).await.with_context(|| format!("reading the channel {url}"))?;
    let channel = Channel::parse(&text, url, release)?;
    if channel.is_unheeded_manifest && is_new(format!("{url} by kOps {release}")) {
        log::warn!(
            "{url} is a manifest, not a channel: kOps {release} ignores it; kOps 1.36 and newer apply it as an add-on"
        );
    }
    Ok(channel.menu(version))
}

/// Reads the add-ons of these channels. If several channels have an add-on, only the last channel's entry counts. Warns of the skipped
/// entries.
pub async fn menus(store: &Store, channels: &[String], version: ServerVersion) -> Result<Vec<Menu>> {
    let release = release(store, channels).await?;
    let mut menus = Vec::new();
    for channel in channels {
        menus.push(menu(store, channel, version, release).await?);
    }
    for addon in leave_to_last_channel(&mut menus) {
        log::warn!(
            "the entry of {} for the add-on {} is skipped: a later channel has this add-on, too",
            addon.channel,
            addon.name
        );
    }
    Ok(menus)
}

pub fn warn_of_left_out<'a>(left_out: impl Iterator<Item = &'a LeftOut>) {
    for LeftOut { name, problem } in left_out {
        log::warn!("the add-on {name} is skipped: {problem}");
    }
}

/// Reads the objects of an add-on's manifest. Fails if the manifest's hash differs from the hash in kOps' own channel.
pub async fn manifest(store: &Store, addon: &Addon) -> Result<Vec<Object>> {
    addon.check()?;
    let url = addon.manifest_url()?;
    let text = read(store, &url).await.with_context(|| format!("reading the manifest {url}"))?;
    addon.check_manifest(&text, &url)?;
    Ok(manifest::objects(&text, &url)?)
}

/// The warnings that were already logged. Later rounds do not repeat them.
static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn is_new(told: String) -> bool {
    TOLD.lock().insert(told)
}

async fn read(store: &Store, url: &str) -> Result<Vec<u8>, StoreError> {
    if url.starts_with("http://") && is_new(url.to_owned()) {
        log::warn!("{url} is read without TLS, so any hop on the way can change the add-ons");
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

    /// Source: upstream's `kops-channels` reads web servers too (`ReadFile` in util/pkg/vfs/context.go).
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
        let release = release(&store, std::slice::from_ref(&channel)).await.unwrap();
        assert_eq!(release, KopsRelease::NEWEST, "nothing tells it");
        let menu = menu(&store, &channel, version, release).await.unwrap();
        let objects = manifest(&store, &menu.addons[0]).await.unwrap();
        assert_eq!(objects.len(), 1);

        let none = format!("{}/none.yaml", server.url);
        let missing = super::menu(&store, &none, version, release).await.unwrap_err();
        assert!(format!("{missing:#}").contains("does not exist"), "{missing:#}");
    }
}
