//! Lists the images of add-ons, which need a mirror in a cluster without the internet.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use kops_agent_cluster::addons::{ServerVersion, collect_images};
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_store::Store;

use super::reading;

/// The images of the add-ons that these channels select for a version of Kubernetes.
///
/// # Errors
/// A channel or a manifest cannot be read or parsed, or `kubernetes` is not a version.
pub async fn images(store: &Store, channels: &[String], kubernetes: &str) -> Result<BTreeSet<String>> {
    let version = ServerVersion::parse(kubernetes).ok_or_else(|| {
        Failure::new(Kind::SpecWrong, format!("{kubernetes:?} is not a version of Kubernetes"))
    })?;
    let release = reading::release(store, channels).await?;
    let mut images = BTreeSet::new();
    for channel in channels {
        let menu = reading::menu(store, channel, version, release).await?;
        for addon in &menu.addons {
            let objects = reading::manifest(store, addon).await;
            let objects =
                objects.with_context(|| format!("listing the images of the add-on {}", addon.name))?;
            objects.iter().for_each(|object| collect_images(&object.value, &mut images));
        }
    }
    Ok(images)
}
