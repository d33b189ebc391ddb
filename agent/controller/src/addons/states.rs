//! The states of add-ons: their channel entries, their installed versions, and the due work.

use anyhow::{Context, Result};

use kops_agent_cluster::addons::{Addon, ChannelVersion, Due, LeftOut, Menu, due};
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_store::Store;

use super::channels::ChannelOptions;
use super::installed::{self, Installed};
use super::objects::Objects;
use super::{authority, channels, reading};
use crate::configuration;

/// The input of a command about add-ons: the channels, and access to the cluster.
pub struct Scene {
    pub store: Store,
    pub objects: Objects,
    /// The channels' add-ons, in the order of the channels. With `is_of_one`, only the add-on that the user named.
    pub menus: Vec<Menu>,
    /// Whether the user named one add-on.
    pub is_of_one: bool,
}

pub struct AddonState {
    pub addon: Addon,
    /// The installed version; `None` for a new add-on.
    pub installed: Option<ChannelVersion>,
    pub due: Option<Due>,
    pub is_paused: bool,
    /// Why the add-on's entry in the channel cannot be applied.
    pub problem: Option<String>,
}

impl Scene {
    /// Reads the channels for the API server's version. With `name`, the scene has only the named add-on. Fails if no channel has this
    /// add-on.
    pub async fn open(options: &ChannelOptions, name: Option<&str>) -> Result<Scene> {
        let client = kops_agent_kube::client_of(&options.kubeconfig)?;
        let store = configuration::store(&options.store_mirrors)?.reading_in_clear();
        let channels = channels::settings(options)?.channels;
        let version = reading::server_version(&client).await?;
        let mut menus = reading::menus(&store, &channels, version).await?;
        if let Some(name) = name {
            menus = only(menus, name, &channels)?;
        }
        Ok(Scene { store, objects: Objects::new(client), menus, is_of_one: name.is_some() })
    }

    /// Logs the skipped entries.
    pub fn warn_of_left_out(&self) {
        reading::warn_of_left_out(self.left_out());
    }

    /// The skipped entries, each with the reason.
    pub fn left_out(&self) -> impl Iterator<Item = &LeftOut> {
        self.menus.iter().flat_map(|menu| &menu.left_out)
    }

    /// Reads which versions of add-ons are installed, and which add-ons are paused.
    pub async fn installed(&self) -> Result<Installed> {
        installed::read(self.objects.client()).await.context("reading the installed add-ons")
    }

    pub fn addons(&self) -> impl Iterator<Item = &Addon> {
        self.menus.iter().flat_map(|menu| &menu.addons)
    }

    pub async fn states<'a>(
        &self,
        addons: impl Iterator<Item = &'a Addon>,
        installed: &Installed,
    ) -> Result<Vec<AddonState>> {
        let mut addon_states = Vec::new();
        for addon in addons {
            let has_authority = match addon.spec.needs_pki {
                true => authority::is_there(&self.objects, &addon.name)
                    .await
                    .with_context(|| format!("looking for the CA of the add-on {}", addon.name))?,
                false => true,
            };
            let is_paused = installed.paused.contains(&addon.record());
            let installed = installed.versions.get(&addon.record()).cloned();
            addon_states.push(AddonState {
                due: due(addon, installed.as_ref(), has_authority),
                is_paused,
                problem: addon.check().err().map(|error| error.to_string()),
                addon: addon.clone(),
                installed,
            });
        }
        Ok(addon_states)
    }
}

/// Reduces the menus to one add-on.
fn only(mut menus: Vec<Menu>, name: &str, channels: &[String]) -> Result<Vec<Menu>, Failure> {
    let all: Vec<String> =
        menus.iter().flat_map(|menu| &menu.addons).map(|addon| addon.name.clone()).collect();
    for menu in &mut menus {
        menu.addons.retain(|addon| addon.name == name);
        menu.left_out.retain(|left_out| left_out.name == name);
    }
    match menus.iter().all(|menu| menu.addons.is_empty() && menu.left_out.is_empty()) {
        false => Ok(menus),
        true => Err(Failure::new(
            Kind::AddonRefused,
            format!(
                "no add-on {name:?} for this version of Kubernetes in: {}; available: {}",
                channels.join(", "),
                if all.is_empty() { "none".to_owned() } else { all.join(", ") }
            ),
        )),
    }
}
